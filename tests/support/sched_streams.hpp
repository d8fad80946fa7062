// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Launched calls in the explorer: streams of the ranks of a SchedWorld, each a team of lanes that runs its launches one
// after the other, as a stream does: the next starts when all lanes of the one before have ended. Several streams of a
// rank share its LaunchedState. Lane 0 is, between two launches, the application: it rewrites the input and looks at
// the output.
#ifndef RINGBELL_TESTS_SUPPORT_SCHED_STREAMS_HPP_
#define RINGBELL_TESTS_SUPPORT_SCHED_STREAMS_HPP_

#include <functional>
#include <string>
#include <vector>

#include "device/worker/launched_call.hpp"
#include "tests/support/sched_world.hpp"

namespace ringbell::test {

using RunLaunched = void (*)(const device::WorkerContext&, SchedGroup&, const device::LaunchedCall&);

/// The product's, nothing planted.
void sched_launched(const device::WorkerContext& ctx, SchedGroup& group, const device::LaunchedCall& call);
void warp_launched(const device::WorkerContext& ctx, WarpGroup& group, const device::LaunchedCall& call);

/// What a stream of a rank runs: numbers of StreamsConfig::calls.
struct StreamPlan {
  unsigned rank = 0;
  std::vector<std::size_t> calls;
};

struct StreamsConfig {
  unsigned lanes = 1;
  bool warps = false;  // WarpGroup: lanes in teams of two, at least two teams
  std::vector<Call> calls;
  std::vector<StreamPlan> streams;  // empty: one a rank, with all calls
  unsigned buffers = 2;             // used by turns
  bool same_issue = false;          // all calls are replays of one node
  bool must_succeed = true;         // every output is checked on the spot; else the test looks at done()
  std::uint64_t first_epoch = 0;    // of the stream way
  std::uint64_t first_op = 0;
  std::uint64_t pauses = 100;                                                   // before a launch, at most
  std::function<bool(unsigned stream, std::size_t call)> may_launch;            // asked until true
  std::function<void(unsigned stream, device::WorkerContext&)> change_context;  // when a seed begins
};

class SchedStreams {
 public:
  /// What became of a call on a rank.
  struct Done {
    bool begun = false;  // it may run by now
    bool ended = false;
    bool filled = false;             // nothing but ones
    std::vector<std::uint64_t> out;  // elements
  };

  /// Threads of every seed of `world`, which must outlive it.
  SchedStreams(SchedWorld& world, StreamsConfig config, RunLaunched run = sched_launched);
  SchedStreams(const SchedStreams&) = delete;
  SchedStreams& operator=(const SchedStreams&) = delete;

  /// More of a test's own, when a seed begins.
  std::function<void()> on_begin;

  [[nodiscard]] device::LaunchedState* state(unsigned r) { return ranks_[r].state; }
  /// What memory holds now; no scheduling point.
  [[nodiscard]] std::uint64_t turn(unsigned r) const { return ranks_[r].state->turn; }
  /// How often the turn was taken, and how often an attempt found that it was not free.
  [[nodiscard]] unsigned taken(unsigned r) const { return ranks_[r].taken; }
  [[nodiscard]] unsigned refused(unsigned r) const { return ranks_[r].refused; }
  [[nodiscard]] const Done& done(unsigned r, std::size_t call) const { return ranks_[r].done[call]; }
  [[nodiscard]] const device::WorkerContext& context(unsigned stream) const { return streams_[stream].ctx; }
  /// Is the output of `call` on rank `r` the sum of what the ranks gave to these calls?
  [[nodiscard]] bool is_sum(unsigned r, std::size_t call, const std::vector<std::size_t>& of_ranks) const;
  /// Bit n: model thread n is a lane of the rank.
  [[nodiscard]] std::uint32_t threads_of(unsigned r) const;
  /// From now on no store of the rank's launched calls may reach a window: its own or a peer's.
  void forbid_windows(unsigned r, const std::string& why);

 private:
  struct Rank {
    device::LaunchedState* state = nullptr;  // in the model's memory
    std::vector<std::byte*> in, out;
    std::vector<Done> done;
    unsigned taken = 0;
    unsigned refused = 0;
  };
  struct Stream {
    StreamPlan plan;
    device::WorkerContext ctx{};
    SchedWorker worker;
    WarpWorker warps;
    SchedWorker::Barrier ended;
  };

  void begin();
  void lane(unsigned stream, unsigned lane);
  void prepare(unsigned stream, std::size_t call);
  void collect(unsigned stream, std::size_t call);
  [[nodiscard]] device::LaunchedCall launched_call(unsigned r, std::size_t call) const;
  [[nodiscard]] std::byte* input(unsigned r, std::size_t call) const;
  [[nodiscard]] std::byte* output(unsigned r, std::size_t call) const;
  [[nodiscard]] std::uint64_t element(unsigned r, std::size_t call, std::uint64_t i) const;

  SchedWorld& world_;
  StreamsConfig config_;
  RunLaunched run_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_SCHED_STREAMS_HPP_
