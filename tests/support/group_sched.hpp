// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The lanes of one modelled worker: each lane is a model thread and a team by itself. A barrier makes what every lane
// did happen before what any lane does next.
#ifndef RINGBELL_TESTS_SUPPORT_GROUP_SCHED_HPP_
#define RINGBELL_TESTS_SUPPORT_GROUP_SCHED_HPP_

#include <cstring>

#include "device/group/group.hpp"
#include "tests/support/ops_sched.hpp"

namespace ringbell::test {

/// What the lanes of a worker share.
struct SchedWorker {
  static constexpr unsigned kMaxLanes = 4;

  unsigned lanes = 1;
  std::array<unsigned, kMaxLanes> thread{};  // the lanes' model threads
  device::GroupShared shared{};

  /// Lanes 0 to `participants` - 1 meet.
  struct Barrier {
    Status worst = Status::kOk;   // of the lanes that stand here
    Status agreed = Status::kOk;  // of those that passed last
    unsigned arrived = 0;
    std::uint64_t passed = 0;
  };
  Barrier of_all;
  Barrier of_slot;

  /// @param shared_is_new the storage is another launch's: its old content means nothing
  Status meet(Barrier& barrier, unsigned participants, Status status, bool shared_is_new = false) {
    Scheduler& scheduler = Scheduler::current();
    if (status > barrier.worst) barrier.worst = status;
    if (++barrier.arrived == participants) {
      Clock all{};
      for (unsigned lane = 0; lane < participants; ++lane) {
        const Clock& clock = SchedModel::memory->clock(thread[lane]);
        for (unsigned i = 0; i < kMaxModelThreads; ++i) all[i] = clock[i] > all[i] ? clock[i] : all[i];
      }
      for (unsigned lane = 0; lane < participants; ++lane) {
        SchedModel::memory->join(thread[lane], all);
        scheduler.wake(thread[lane]);
      }
      if (shared_is_new) std::memset(static_cast<void*>(&shared), 0xa5, sizeof shared);
      barrier.agreed = barrier.worst;
      barrier.worst = Status::kOk;
      barrier.arrived = 0;
      ++barrier.passed;
    } else {
      const std::uint64_t round = barrier.passed;
      while (round == barrier.passed) scheduler.block();
    }
    return barrier.agreed;
  }
};

class SchedGroup {
 public:
  static constexpr bool kMayBeOneTeam = true;
  static constexpr unsigned kLineLanes = 1;
  static constexpr unsigned kTeamQuads = device::kCommandQuads;

  SchedGroup(SchedWorker& worker, unsigned lane) : worker_(worker), lane_(lane) {}

  [[nodiscard]] unsigned lane() const { return lane_; }
  [[nodiscard]] unsigned all_lanes() const { return worker_.lanes; }
  [[nodiscard]] unsigned lanes() const { return worker_.shared.lanes; }
  [[nodiscard]] bool alone() const { return worker_.shared.alone; }
  [[nodiscard]] bool all_here() const { return !alone() || all_lanes() == 1; }
  device::GroupShared& shared() { return worker_.shared; }
  void sync(device::Edge edge) { static_cast<void>(agree(Status::kOk, edge)); }
  Status agree(Status status, device::Edge edge) {
    Scheduler::current().point();
    if (SchedModel::weak(edge, Side::kBarrier)) return status;
    if (edge == device::Edge::kSlotRead || edge == device::Edge::kSlotFill) {
      return worker_.meet(worker_.of_slot, lanes(), status);
    }
    if (edge != device::Edge::kStart && in_poll_team() && alone()) return status;
    return worker_.meet(worker_.of_all, all_lanes(), status);
  }
  static constexpr unsigned line_lane() { return 0; }
  static constexpr bool line_all(bool flag) { return flag; }
  static void line_sync() {}
  static constexpr bool line_together() { return true; }
  [[nodiscard]] bool in_poll_team() const { return lane_ == 0; }
  [[nodiscard]] bool in_header_team() const { return lane_ == all_lanes() - 1; }
  [[nodiscard]] bool in_layout_team() const { return lane_ == (lanes() == 1 ? 0 : 1); }
  static constexpr unsigned team_lane() { return 0; }
  static constexpr unsigned team_lanes() { return 1; }
  static constexpr bool team_all(bool flag) { return flag; }
  static constexpr std::uint64_t team_broadcast(std::uint64_t word) { return word; }
  static void team_sync() {}
  bool claim_failure() { return worker_.shared.failure_taken++ == 0; }

 private:
  SchedWorker& worker_;
  unsigned lane_;
};
static_assert(device::Group<SchedGroup>);

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_GROUP_SCHED_HPP_
