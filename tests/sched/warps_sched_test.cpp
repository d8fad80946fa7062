// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
//
// The worker over CudaGroup's barriers, explored: no lane stays behind, no barrier is met for two things, nothing
// shared is written under a slow lane's eyes; in mixes of calls with parks, and when calls fail. Fibers: no sanitizer
// follows them.
#include <functional>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using Host = SchedOps<>;

WorldConfig warps(unsigned ranks, unsigned teams) {
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = teams * WarpWorker::kTeam;
  config.warps = true;
  config.step_limit = 3'000'000;
  return config;
}

/// Zero bytes, a line, short and long calls of all formats, at odd addresses, in place, at the end of bursts.
std::vector<Call> mix(std::uint64_t salt) {
  SeededRandom random(salt);
  std::vector<Call> calls;
  for (unsigned i = 0; i < 10; ++i) {
    constexpr std::uint64_t kCounts[] = {0, 1, 4, 8};
    constexpr std::uint32_t kChunks[] = {16, 16, 32, 48, 96, 240};
    Call call;
    call.protocol = random.one_in(2) ? Protocol::kLL : static_cast<Protocol>(1 + random.below(3));
    const std::uint32_t kind = random.below(6);
    call.count = kind < 4 ? kCounts[kind] : 3 + random.below(20);
    call.chunk_bytes = kChunks[random.below(6)];
    if (random.one_in(4)) {
      call.dtype = DType::kUInt8;
      call.offset = static_cast<std::uint8_t>(random.below(8));
    }
    call.in_place = random.one_in(4);
    if (random.one_in(5)) call.flags = device::kFlagLastOfBurst;
    calls.push_back(call);
  }
  return calls;
}

class WarpsMix : public testing::TestWithParam<std::tuple<unsigned, unsigned, std::uint64_t>> {};

TEST_P(WarpsMix, EveryScheduleGivesTheSum) {
  const auto [ranks, teams, salt] = GetParam();
  WorldConfig config = warps(ranks, teams);
  config.layout.slots = salt % 2 == 0 ? 4 : 2;
  config.ahead = 2;
  config.calls = mix(salt * 77 + ranks * 5 + teams);
  config.idle_park_ns = {0, 1000, 100'000'000};
  config.lease_ns = {0, 20'000, 100'000, 1'000'000'000};
  constexpr std::uint64_t kPeriod = 0xffffffff;  // of LL's flag
  config.first_epoch = config.first_seq = config.first_op = salt < 3 ? 0 : kPeriod - 2 * salt;
  SchedWorld world(config);
  const Outcome outcome = world.explore(first_seed(), seed_count(50));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

INSTANTIATE_TEST_SUITE_P(Worlds, WarpsMix,
                         testing::Combine(testing::Values(1u, 2u), testing::Values(2u, 3u),
                                          testing::Values(1u, 2u, 3u, 4u)));
INSTANTIATE_TEST_SUITE_P(ThreeRanks, WarpsMix,
                         testing::Combine(testing::Values(3u), testing::Values(2u), testing::Values(1u, 2u, 3u, 4u)));

/// The second call of the others comes when rank 0 has given up.
std::function<bool(unsigned, std::size_t)> only_rank_0_calls_twice(SchedWorld* const* world) {
  return [world](unsigned rank, std::size_t index) {
    return index == 0 || rank == 0 ||
           device::state_residency((*world)->rank(0).ctx.control->state.state) == device::Residency::kBroken;
  };
}

class WarpsFail : public testing::TestWithParam<std::tuple<Protocol, unsigned>> {};

// One rank's second call has another count: the same lines, more, or none.
TEST_P(WarpsFail, AMismatchEndsOnEveryRank) {
  const auto [protocol, teams] = GetParam();
  for (const auto& [count, other] : {std::pair{4, 5}, {4, 20}, {20, 3}, {0, 3}, {3, 0}}) {
    WorldConfig config = warps(2, teams);
    config.calls = {{.count = 3, .protocol = protocol},
                    {.count = static_cast<std::uint64_t>(count), .protocol = protocol}};
    config.change_call = [other = other](Call call, unsigned rank, std::size_t index) {
      if (index != 1) return call;
      call.expected = Status::kMismatch;
      if (rank == 1) call.count = static_cast<std::uint64_t>(other);
      return call;
    };
    SchedWorld* self = nullptr;
    config.may_submit = [&self](unsigned, std::size_t index) {
      if (index == 0) return true;
      for (unsigned r = 0; r < 2; ++r) {
        if (self->rank(r).ctx.completions[0].word == 0) return false;
      }
      return true;
    };
    SchedWorld world(config);
    self = &world;
    const Outcome outcome = world.explore(first_seed(), seed_count(50));
    EXPECT_FALSE(outcome.failed) << count << " and " << other << ": " << outcome.report;
  }
}

TEST_P(WarpsFail, ATimeOutEndsOnEveryRank) {
  const auto [protocol, teams] = GetParam();
  WorldConfig config = warps(2, teams);
  config.timeout_ns = 2'000'000;
  config.calls = {{.count = 3, .protocol = protocol}, {.count = 30, .protocol = protocol, .chunk_bytes = 32}};
  config.change_call = [](Call call, unsigned, std::size_t index) {
    if (index == 1) call.expected = Status::kTimeout;
    return call;
  };
  SchedWorld* self = nullptr;
  config.may_submit = only_rank_0_calls_twice(&self);
  SchedWorld world(config);
  self = &world;
  const Outcome outcome = world.explore(first_seed(), seed_count(50));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST_P(WarpsFail, AnAbortEndsOnEveryRank) {
  const auto [protocol, teams] = GetParam();
  WorldConfig config = warps(2, teams);
  config.calls = {{.count = 3, .protocol = protocol}, {.count = 9, .protocol = protocol}};
  config.change_call = [](Call call, unsigned, std::size_t index) {
    if (index == 1) call.expected = Status::kAborted;
    return call;
  };
  SchedWorld* self = nullptr;
  config.may_submit = only_rank_0_calls_twice(&self);
  SchedWorld world(config);
  self = &world;
  world.add_thread("aborter", true, [](SchedWorld& all) {
    for (unsigned r = 0; r < 2; ++r) {
      while (Host::load_acquire(&all.rank(r).ctx.completions[0].word, Edge::kCompletion) == 0) Host::pause(1);
    }
    Host::store_release(&all.rank(0).ctx.control->control.abort_code, device::abort_code(Status::kAborted, 0, 0),
                        Edge::kAbort);
  });
  const Outcome outcome = world.explore(first_seed(), seed_count(50));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

INSTANTIATE_TEST_SUITE_P(Worlds, WarpsFail,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u)));

}  // namespace
}  // namespace ringbell::test
