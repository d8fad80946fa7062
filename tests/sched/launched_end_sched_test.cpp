// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=300 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// How launched calls end, explored: overlaps, peers that fail, a communicator that goes. An output is the whole sum or
// nothing but ones; once something is wrong nothing runs any more; nothing is written to a window after the close. Each
// mutant is found within 5,000 seeds.
#include <cstdio>
#include <tuple>

#include <gtest/gtest.h>

#include "device/worker/launched.hpp"
#include "tests/support/sched_streams.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using device::Mutant;
using Host = SchedOps<>;

WorldConfig no_host_calls(unsigned ranks) {
  WorldConfig config;
  config.ranks = ranks;
  config.step_limit = 1'000'000;
  return config;
}

/// Rank 0 has a stream for each of `calls` calls, the others have them all on one. All calls look alike, as replays do.
StreamsConfig overlapping(unsigned ranks, unsigned lanes, bool warps, Protocol protocol, std::size_t calls) {
  StreamsConfig config;
  config.lanes = lanes;
  config.warps = warps;
  config.same_issue = true;
  config.must_succeed = false;
  config.buffers = static_cast<unsigned>(calls);
  for (std::size_t call = 0; call < calls; ++call) {
    config.calls.push_back({.count = 5, .protocol = protocol});
    config.streams.push_back({0, {call}});
  }
  for (unsigned r = 1; r < ranks; ++r) {
    StreamPlan plan{r, {}};
    for (std::size_t call = 0; call < calls; ++call) plan.calls.push_back(call);
    config.streams.push_back(plan);
  }
  return config;
}

template <Mutant kPlanted>
void mutant_launched(const device::WorkerContext& ctx, SchedGroup& group, const device::LaunchedCall& call) {
  device::run_launched<SchedOps<kPlanted>>(ctx, group, call);
}

void expect_found(const Outcome& found) {
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
}

std::uint64_t broken_by(Status status, unsigned reporter, unsigned peer) {
  return device::broken_turn(device::abort_code(status, reporter, peer));
}

/// Every rank but `r` has been told by `r`.
std::string check_told(SchedWorld& world, unsigned r, std::uint64_t code) {
  for (unsigned peer = 0; peer < world.config().ranks; ++peer) {
    for (unsigned way = 0; way < device::kWays && peer != r; ++way) {
      const device::WorkerContext& ctx = world.rank(peer).ctx;
      const auto* line = reinterpret_cast<const device::AbortLine*>(
          ctx.window[peer] + way * ctx.layout.way_bytes() + device::WindowLayout::abort_offset(r, device::kStreamWay));
      if (line->code != code) return "rank " + std::to_string(peer) + " was not told on way " + std::to_string(way);
    }
  }
  return {};
}

std::string name_of(unsigned r, std::size_t call) {
  return "rank " + std::to_string(r) + "'s call " + std::to_string(call) + ": ";
}

class LaunchedOverlap : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned, bool>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, LaunchedOverlap,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 2u), testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(Warps, LaunchedOverlap,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kSimple), testing::Values(2u),
                                          testing::Values(4u), testing::Values(true)));

/// Explores `calls` overlapping launches of rank 0: its peers come when one has found another running, so that it is
/// certain. (A call that asks again when the other has just ended, unmarked, overlaps nothing.)
class Overlap {
 public:
  /// @param marks false for a mutant that leaves no mark
  Overlap(std::tuple<Protocol, unsigned, unsigned, bool> param, std::size_t calls, RunLaunched run = sched_launched,
          bool marks = true)
      : marks_(marks),
        world_(no_host_calls(std::get<1>(param))),
        streams_(world_, config(param, calls), run),
        calls_(calls) {
    world_.check_after([this](SchedWorld&) { return check(); });
  }
  Outcome explore(std::uint64_t first, std::uint64_t seeds, Weakening weakening = {}) {
    return world_.explore(first, seeds, weakening);
  }

 private:
  StreamsConfig config(std::tuple<Protocol, unsigned, unsigned, bool> param, std::size_t calls) {
    const auto [protocol, ranks, lanes, warps] = param;
    StreamsConfig config = overlapping(ranks, lanes, warps, protocol, calls);
    config.may_launch = [this, calls](unsigned stream, std::size_t call) {
      const bool overlaps = marks_ ? streams_.turn(0) == device::kTurnContested : streams_.refused(0) != 0;
      return stream < calls || call != 0 || overlaps;
    };
    return config;
  }
  // One ran, with the first calls of the others. No other did, on any rank.
  std::string check() {
    std::size_t ran = calls_;
    for (std::size_t call = 0; call < calls_; ++call) {
      if (streams_.done(0, call).filled) continue;
      if (ran != calls_) return name_of(0, call) + "ran, too";
      ran = call;
    }
    if (ran == calls_) return "none ran";
    const unsigned ranks = world_.config().ranks;
    std::vector<std::size_t> of_ranks(ranks, 0);
    of_ranks[0] = ran;
    for (unsigned r = 0; r < ranks; ++r) {
      const std::size_t first = r == 0 ? ran : 0;
      // A peer that has not seen all of its first call when the abort comes ends with it.
      if (r != 0 && streams_.done(r, first).filled) continue;
      if (!streams_.is_sum(r, first, of_ranks)) return name_of(r, first) + "neither the sum nor all ones";
    }
    for (unsigned r = 1; r < ranks; ++r) {
      for (std::size_t call = 1; call < calls_; ++call) {
        if (!streams_.done(r, call).filled) return name_of(r, call) + "ran although rank 0 has none for it";
      }
    }
    if (streams_.turn(0) != broken_by(Status::kInvalidArgument, 0, 0)) return "rank 0's turn is not broken";
    return check_told(world_, 0, device::abort_code(Status::kInvalidArgument, 0, 0));
  }

  const bool marks_;
  SchedWorld world_;
  SchedStreams streams_;
  std::size_t calls_;
};

TEST_P(LaunchedOverlap, OfTwoAtOnceOneRunsAndTheOtherFillsItsOutput) {
  Overlap overlap(GetParam(), 2);
  const Outcome outcome = overlap.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

// The third comes when it likes: also in the moment in which the turn is passed on.
TEST_P(LaunchedOverlap, OfThreeAtOnceOneRunsAndNothingAfterIt) {
  Overlap overlap(GetParam(), 3);
  const Outcome outcome = overlap.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

// The running one is aborted while the other waits: both fill, and the first failure is what counts.
TEST_P(LaunchedOverlap, IfTheRunningOneFailsBothFillTheirOutputs) {
  const auto [protocol, ranks, lanes, warps] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  SchedStreams* self = nullptr;
  StreamsConfig config = overlapping(ranks, lanes, warps, protocol, 3);
  config.may_launch = [&self](unsigned stream, std::size_t) {
    return stream < 3 || (self->turn(0) & 0xff) == device::kTurnBroken;
  };
  SchedStreams streams(world, config);
  self = &streams;
  world.add_thread("aborter", true, [&](SchedWorld& w) {
    while (streams.refused(0) == 0) Host::pause(1);
    Host::store_release(&w.rank(0).ctx.control->control.abort_code, device::abort_code(Status::kAborted, 0, 0),
                        Edge::kAbort);
  });
  world.check_after([&, ranks = ranks](SchedWorld& w) -> std::string {
    for (unsigned r = 0; r < ranks; ++r) {
      for (std::size_t call = 0; call < 3; ++call) {
        if (!streams.done(r, call).filled) return name_of(r, call) + "not all ones";
      }
    }
    if (streams.turn(0) != broken_by(Status::kAborted, 0, 0)) return "rank 0's turn is not broken by the abort";
    return check_told(w, 0, device::abort_code(Status::kAborted, 0, 0));
  });
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

class LaunchedFails : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned, bool>> {
 protected:
  static constexpr std::size_t kCalls = 4;

  /// Call 0 ends well everywhere; the others' second one comes when rank 0's has failed. Where the turn is broken
  /// nothing is stored to a window any more.
  static StreamsConfig failing(SchedStreams** self, SchedWorld* world) {
    const auto [protocol, ranks, lanes, warps] = GetParam();
    StreamsConfig config;
    config.lanes = lanes;
    config.warps = warps;
    config.must_succeed = false;
    const std::uint32_t chunk = protocol == Protocol::kLL128 ? 240 : 32;
    for (std::size_t call = 0; call < kCalls; ++call) {
      config.calls.push_back({.count = call == 1 ? 9ull : 3ull,
                              .protocol = protocol,
                              .dtype = call == 1 ? DType::kUInt8 : DType::kUInt64,
                              .chunk_bytes = chunk,
                              .in_place = call == 3,
                              .offset = static_cast<std::uint8_t>(call == 1 ? 3 : 0)});
    }
    config.may_launch = [self, world, ranks = ranks](unsigned r, std::size_t call) {
      if (call == 1) {
        for (unsigned peer = 0; peer < ranks; ++peer) {
          if (!(*self)->done(peer, 0).ended) return false;
        }
        return r == 0 || ((*self)->turn(0) & 0xff) == device::kTurnBroken;
      }
      if (call == 2) {
        if ((Host::load_relaxed(&(*self)->state(r)->turn) & 0xff) != device::kTurnBroken) {
          world->scheduler().fail("failed, and not broken");
        }
        if (((*self)->turn(r) & 0xff) != device::kTurnBroken) return false;  // a launch ends when all can see it
        (*self)->forbid_windows(r, "a window is written by a launch after the first failure");
      }
      return true;
    };
    return config;
  }
  static std::string check(SchedWorld& world, SchedStreams& streams, Status status) {
    for (unsigned r = 0; r < world.config().ranks; ++r) {
      const std::vector<std::size_t> first(world.config().ranks, 0);
      if (!streams.is_sum(r, 0, first)) return name_of(r, 0) + "wrong";
      for (std::size_t call = 1; call < kCalls; ++call) {
        if (!streams.done(r, call).filled) return name_of(r, call) + "not all ones";
      }
      const device::WaitRecord& record = world.rank(r).ctx.control->way[device::kStreamWay].failure;
      if (record.status != status || record.valid != record.seq + 1) return name_of(r, 1) + "no record of the failure";
      if (device::abort_status(streams.turn(r) >> device::kTurnCodeShift) != status) {
        return name_of(r, 1) + "the turn is not broken by the failure";
      }
    }
    return {};
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, LaunchedFails,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 2u), testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(Warps, LaunchedFails,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u), testing::Values(4u, 6u), testing::Values(true)));

TEST_P(LaunchedFails, AnAbortWhileALaunchWaitsFillsItAndAllThatFollowsOnEveryRank) {
  SchedWorld world(no_host_calls(std::get<1>(GetParam())));
  SchedStreams* self = nullptr;
  SchedStreams streams(world, failing(&self, &world));
  self = &streams;
  world.add_thread("aborter", true, [&](SchedWorld& w) {
    while (!streams.done(0, 1).begun) Host::pause(1);
    for (std::uint32_t pauses = w.scheduler().random().below(200); pauses != 0; --pauses) Host::pause(1);
    Host::store_release(&w.rank(0).ctx.control->control.abort_code, device::abort_code(Status::kAborted, 0, 0),
                        Edge::kAbort);
  });
  world.check_after([&](SchedWorld& w) { return check(w, streams, Status::kAborted); });
  const Outcome outcome = world.explore(first_seed(), seed_count(50));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST_P(LaunchedFails, ATimeOutFillsTheLaunchAndAllThatFollowsOnEveryRank) {
  WorldConfig host = no_host_calls(std::get<1>(GetParam()));
  host.step_limit = 3'000'000;
  host.timeout_ns = 2'000'000;
  SchedWorld world(host);
  SchedStreams* self = nullptr;
  SchedStreams streams(world, failing(&self, &world));
  self = &streams;
  world.check_after([&](SchedWorld& w) { return check(w, streams, Status::kTimeout); });
  const Outcome outcome = world.explore(first_seed(), seed_count(20));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

// An abort of the last rank at any time: each output is the sum or all ones, and after the first that is ones no other
// is a sum.
TEST_P(LaunchedFails, AnAbortOfAPeerAtAnyTimeLeavesWholeSumsAndThenOnlyOnes) {
  const auto [protocol, ranks, lanes, warps] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  StreamsConfig config;
  config.lanes = lanes;
  config.warps = warps;
  config.must_succeed = false;
  for (std::uint64_t call = 0; call < kCalls; ++call) config.calls.push_back({.count = 3 + call, .protocol = protocol});
  SchedStreams streams(world, config);
  world.add_thread("aborter", true, [ranks = ranks](SchedWorld& w) {
    for (std::uint32_t pauses = w.scheduler().random().below(60); pauses != 0; --pauses) Host::pause(1);
    const unsigned last = ranks - 1;
    Host::store_release(&w.rank(last).ctx.control->control.abort_code, device::abort_code(Status::kAborted, last, last),
                        Edge::kAbort);
  });
  world.check_after([&, ranks = ranks](SchedWorld&) -> std::string {
    for (unsigned r = 0; r < ranks; ++r) {
      bool failed = false;
      for (std::size_t call = 0; call < kCalls; ++call) {
        failed = failed || streams.done(r, call).filled;
        const std::vector<std::size_t> same(ranks, call);
        if (failed ? !streams.done(r, call).filled : !streams.is_sum(r, call, same)) {
          return name_of(r, call) + (failed ? "ran after a failure" : "neither the sum nor all ones");
        }
      }
    }
    return {};
  });
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

constexpr std::tuple kTwoRanks{Protocol::kLL, 2u, 2u, false};

TEST(LaunchedEndMutants, ATurnIsTakenThatIsNotFree) {
  Overlap overlap(kTwoRanks, 2, mutant_launched<Mutant::kTakeAnyTurn>, false);
  expect_found(overlap.explore(1, 5000));
}

TEST(LaunchedEndMutants, AnOverlapThatIsNotMarkedLetsTheSecondRun) {
  Overlap overlap(kTwoRanks, 2, mutant_launched<Mutant::kNoContest>, false);
  expect_found(overlap.explore(1, 5000));
}

/// Rank 0's communicator goes while its streams launch; then its peers are told to give up.
template <Mutant kPlanted = Mutant::kNone>
class Close {
 public:
  Close(std::tuple<Protocol, unsigned, unsigned, bool> param, std::size_t calls, RunLaunched run = sched_launched)
      : world_(no_host_calls(std::get<1>(param))), streams_(world_, config(param, calls), run), calls_(calls) {
    world_.add_thread("closer", true, [this](SchedWorld& w) { close(w); });
    world_.check_after([this](SchedWorld&) { return check(); });
  }
  Outcome explore(std::uint64_t first, std::uint64_t seeds, Weakening weakening = {}) {
    return world_.explore(first, seeds, weakening);
  }
  [[nodiscard]] std::uint64_t sums() const { return sums_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  static StreamsConfig config(std::tuple<Protocol, unsigned, unsigned, bool> param, std::size_t calls) {
    const auto [protocol, ranks, lanes, warps] = param;
    return overlapping(ranks, lanes, warps, protocol, calls);
  }
  void close(SchedWorld& w) {
    SeededRandom& random = w.scheduler().random();
    for (std::uint32_t pauses = random.below(random.one_in(2) ? 200 : 8); pauses != 0; --pauses) Host::pause(1);
    while (!device::close_launched<SchedOps<kPlanted>>(streams_.state(0), random.one_in(2) ? 0 : 10'000))
      Host::pause(1);
    streams_.forbid_windows(0, "a window is written after the close");
    for (unsigned r = 1; r < w.config().ranks; ++r) {
      Host::store_release(&w.rank(r).ctx.control->control.abort_code, device::abort_code(Status::kAborted, r, r),
                          Edge::kAbort);
    }
  }
  std::string check() {
    const unsigned ranks = world_.config().ranks;
    for (unsigned r = 0; r < ranks; ++r) {
      for (std::size_t call = 0; call < calls_; ++call) {
        const bool filled = streams_.done(r, call).filled;
        if (r == 0) ++(filled ? refused_ : sums_);
        if (!filled && !is_some_sum(r, call)) return name_of(r, call) + "neither a sum nor all ones";
      }
    }
    return streams_.turn(0) == device::kTurnClosed ? "" : "rank 0's turn is not closed";
  }
  // Of rank 0 nobody knows which came first; the others go in order.
  [[nodiscard]] bool is_some_sum(unsigned r, std::size_t call) const {
    for (std::size_t of_0 = 0; of_0 < calls_; ++of_0) {
      for (std::size_t of_others = 0; of_others < calls_; ++of_others) {
        std::vector<std::size_t> of_ranks(ranks(), of_others);
        of_ranks[0] = of_0;
        if ((r == 0 ? call == of_0 : call == of_others) && streams_.is_sum(r, call, of_ranks)) return true;
      }
    }
    return false;
  }
  [[nodiscard]] unsigned ranks() const { return world_.config().ranks; }

  SchedWorld world_;
  SchedStreams streams_;
  std::size_t calls_;
  std::uint64_t sums_ = 0;
  std::uint64_t refused_ = 0;
};

TEST_P(LaunchedOverlap, ALaunchRunsToItsEndBeforeTheCloseOrIsRefusedAndTouchesNoWindow) {
  Close<> close(GetParam(), 1);
  const Outcome outcome = close.explore(first_seed(), seed_count(200));
  EXPECT_FALSE(outcome.failed) << outcome.report;
  if (outcome.seeds >= 100) {
    EXPECT_GT(close.sums(), outcome.seeds / 20);
    EXPECT_GT(close.refused(), outcome.seeds / 20);
  }
}

TEST_P(LaunchedOverlap, OverlappingLaunchesTouchNoWindowAfterTheClose) {
  Close<> close(GetParam(), 3);
  const Outcome outcome = close.explore(first_seed(), seed_count(200));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST(LaunchedEndMutants, ACloseThatDoesNotWaitForTheLaunchThatRuns) {
  Close<Mutant::kCloseTaken> close(kTwoRanks, 1);
  expect_found(close.explore(1, 5000));
}

// What a launch stored is still on its way when the close has returned.
TEST(LaunchedEndMutants, ATurnPassedOnRelaxedLetsStoresPassTheClose) {
  Close<> close(kTwoRanks, 1);
  expect_found(close.explore(1, 5000, {Edge::kTurn, Side::kRelease}));
}

}  // namespace
}  // namespace ringbell::test
