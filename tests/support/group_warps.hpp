// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A second group for the explorer: CudaGroup's barriers, one for one, over teams of two lanes that come apart at every
// vote and at every look at shared storage. Finds lanes that are left behind, barriers whose counts differ, and storage
// that is written while a slow lane still reads it. It says nothing of memory order: barriers order everything here.
#ifndef RINGBELL_TESTS_SUPPORT_GROUP_WARPS_HPP_
#define RINGBELL_TESTS_SUPPORT_GROUP_WARPS_HPP_

#include <cstring>
#include <string>

#include "device/group/group.hpp"
#include "tests/support/ops_sched.hpp"

namespace ringbell::test {

/// What the lanes of a worker share.
struct WarpWorker {
  static constexpr unsigned kMaxLanes = 8;
  static constexpr unsigned kTeam = 2;

  enum class Kind { kNone, kSync, kOr, kVote, kBroadcast, kTeamSync, kWorst };
  struct Barrier {
    Kind kind = Kind::kNone;
    unsigned participants = 0;
    unsigned arrived = 0;
    std::uint64_t passed = 0;
    std::array<unsigned, kMaxLanes> waiting{};
    unsigned waiters = 0;
    Clock clocks{};
    Clock passed_clocks{};
    // Of those that stand here, and of those that passed last.
    std::uint64_t joined = 0;  // votes: 1 while all say yes; broadcast: the word; worst: the status
    std::uint64_t agreed = 0;
  };
  struct Arrival {
    Kind kind;
    unsigned participants;
    std::uint64_t word = 0;
    bool gives_word = true;
    bool waits = true;
    bool new_launch = false;  // the storage is another launch's: its old content means nothing
  };

  unsigned lanes = 1;
  std::array<unsigned, kMaxLanes> thread{};
  device::GroupShared shared{};
  std::uint32_t worst = 0;
  Barrier of_all, of_slot, start_headers, start_others, of_few;
  std::array<Barrier, kMaxLanes / kTeam> team;

  /// @return what the lanes agreed on; nothing for one that does not wait
  std::uint64_t meet(Barrier& barrier, const Arrival& arrival) {
    Scheduler& scheduler = Scheduler::current();
    if (barrier.arrived == 0) {
      barrier.kind = arrival.kind;
      barrier.participants = arrival.participants;
      barrier.joined = arrival.kind == Kind::kVote ? 1 : 0;
      barrier.clocks = Clock{};
      barrier.waiters = 0;
    }
    if (barrier.kind != arrival.kind || barrier.participants != arrival.participants) {
      scheduler.fail("lanes meet at one barrier for different things, or in different numbers");
    }
    join_word(barrier, arrival);
    const Clock& clock = SchedModel::memory->clock(scheduler.self());
    for (unsigned i = 0; i < kMaxModelThreads; ++i) {
      barrier.clocks[i] = clock[i] > barrier.clocks[i] ? clock[i] : barrier.clocks[i];
    }
    if (++barrier.arrived == arrival.participants) {
      barrier.agreed = barrier.joined;
      barrier.passed_clocks = barrier.clocks;
      barrier.arrived = 0;
      ++barrier.passed;
      if (arrival.new_launch) begin_launch();
      for (unsigned i = 0; i < barrier.waiters; ++i) scheduler.wake(barrier.waiting[i]);
    } else if (arrival.waits) {
      barrier.waiting[barrier.waiters++] = scheduler.self();
      const std::uint64_t round = barrier.passed;
      while (round == barrier.passed) scheduler.block();
    }
    if (!arrival.waits) return 0;
    SchedModel::memory->join(scheduler.self(), barrier.passed_clocks);
    return barrier.agreed;
  }

 private:
  void begin_launch() {
    for (const Barrier* barrier : {&of_all, &of_slot, &start_headers, &start_others, &of_few}) nobody_at(*barrier);
    for (const Barrier& barrier : team) nobody_at(barrier);
    std::memset(static_cast<void*>(&shared), 0xa5, sizeof shared);
  }
  static void nobody_at(const Barrier& barrier) {
    if (barrier.arrived != 0) Scheduler::current().fail("a launch begins with lanes left at a barrier");
  }
  static void join_word(Barrier& barrier, const Arrival& arrival) {
    switch (arrival.kind) {
      case Kind::kVote: barrier.joined &= arrival.word; break;
      case Kind::kOr: barrier.joined |= arrival.word; break;
      case Kind::kWorst: barrier.joined = arrival.word > barrier.joined ? arrival.word : barrier.joined; break;
      case Kind::kBroadcast:
        if (arrival.gives_word) barrier.joined = arrival.word;
        break;
      default: break;
    }
  }
};

class WarpGroup {
 public:
  static constexpr bool kMayBeOneTeam = false;
  static constexpr unsigned kLineLanes = 1;
  static constexpr unsigned kTeam = WarpWorker::kTeam;
  static constexpr unsigned kTeamQuads = device::kCommandQuads / kTeam;

  WarpGroup(WarpWorker& worker, unsigned lane) : worker_(worker), lane_(lane) {}

  [[nodiscard]] unsigned lane() const { return lane_; }
  [[nodiscard]] unsigned all_lanes() const { return worker_.lanes; }
  [[nodiscard]] unsigned lanes() const { return look().lanes; }
  [[nodiscard]] bool alone() const { return look().alone; }
  [[nodiscard]] bool all_here() const { return !alone() && !few(); }
  device::GroupShared& shared() { return look(); }
  void sync(device::Edge edge) {
    if (of_slot(edge)) return lanes() == kTeam ? team_sync() : named(worker_.of_slot, lanes());
    if (edge == device::Edge::kOpStart) return start();
    named(worker_.of_all, all_lanes());
  }
  Status agree(Status status, device::Edge edge) {
    const bool failed = status != Status::kOk;
    if (of_slot(edge) ? lanes() == kTeam : alone()) {
      team_sync();
      return team_all(!failed) ? Status::kOk
                               : static_cast<Status>(team_meet(Kind::kWorst, static_cast<unsigned>(status)));
    }
    if (of_slot(edge)) return agree_at(worker_.of_slot, status, lanes());
    return few() ? agree_at(worker_.of_few, status, 2 * kTeam) : agree_at(worker_.of_all, status, all_lanes());
  }
  static constexpr unsigned line_lane() { return 0; }
  static constexpr bool line_all(bool flag) { return flag; }
  static void line_sync() {}
  static constexpr bool line_together() { return true; }
  [[nodiscard]] bool in_poll_team() const { return lane_ < kTeam; }
  [[nodiscard]] bool in_header_team() const { return lane_ + kTeam >= all_lanes(); }
  [[nodiscard]] bool in_layout_team() const { return lane_ / kTeam == (lanes() == kTeam ? 0u : 1u); }
  [[nodiscard]] unsigned team_lane() const { return lane_ % kTeam; }
  static constexpr unsigned team_lanes() { return kTeam; }
  bool team_all(bool flag) { return team_meet(Kind::kVote, flag ? 1 : 0) != 0; }
  std::uint64_t team_broadcast(std::uint64_t word) { return team_meet(Kind::kBroadcast, word, team_lane() == 0); }
  void team_sync() { team_meet(Kind::kTeamSync, 0); }
  bool claim_failure() { return look().failure_taken++ == 0; }

 private:
  using Kind = WarpWorker::Kind;
  static bool of_slot(device::Edge edge) { return edge == device::Edge::kSlotRead || edge == device::Edge::kSlotFill; }
  // Lanes come apart wherever they look.
  device::GroupShared& look() const {
    Scheduler::current().point();
    return worker_.shared;
  }
  [[nodiscard]] bool few() const { return lanes() == kTeam; }
  std::uint64_t team_meet(Kind kind, std::uint64_t word, bool gives_word = true) {
    Scheduler::current().point();
    return worker_.meet(worker_.team[lane_ / kTeam], {kind, kTeam, word, gives_word});
  }
  void named(WarpWorker::Barrier& barrier, unsigned participants) {
    team_sync();
    worker_.meet(barrier, {Kind::kSync, participants});
  }
  Status agree_at(WarpWorker::Barrier& barrier, Status status, unsigned participants) {
    team_sync();
    if (worker_.meet(barrier, {Kind::kOr, participants, status != Status::kOk ? 1u : 0u}) == 0) return Status::kOk;
    if (lane_ == 0) worker_.worst = 0;
    named(barrier, participants);
    Scheduler::current().point();
    if (static_cast<std::uint32_t>(status) > worker_.worst) worker_.worst = static_cast<std::uint32_t>(status);
    named(barrier, participants);
    Scheduler::current().point();
    return static_cast<Status>(worker_.worst);
  }
  void start() {
    if (in_header_team()) return named(worker_.start_headers, 2 * kTeam);
    if (in_poll_team()) {
      if (alone()) return team_sync();
      team_sync();
      worker_.meet(worker_.start_headers, {Kind::kSync, 2 * kTeam, 0, false, false});
      if (few()) return;
    }
    named(worker_.start_others, all_lanes() - kTeam);
  }

  WarpWorker& worker_;
  unsigned lane_;
};
static_assert(device::Group<WarpGroup>);

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_GROUP_WARPS_HPP_
