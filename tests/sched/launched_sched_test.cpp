// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=300 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// Launched calls, explored: launches in a row on a stream, on streams in turn, beside a resident worker, near the
// wraps. Each mutant of the turn is found within 5,000 seeds. How launched calls end: launched_end_sched_test.cpp.
#include <cstdio>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/sched_streams.hpp"

namespace ringbell::test {
namespace {

using device::Edge;

constexpr std::uint64_t kFlagPeriod = 0xffffffff;  // of LL's flag

/// Sizes around a line, none, small types at odd addresses, in place and out of place.
std::vector<Call> calls_of(Protocol protocol) {
  const std::uint32_t chunk = protocol == Protocol::kLL128 ? 240 : 32;
  return {
      {.count = 6, .protocol = protocol},
      {.count = chunk == 240 ? 70ull : 17ull, .protocol = protocol, .chunk_bytes = chunk},
      {.count = 0, .protocol = protocol},
      {.count = 5, .protocol = protocol, .dtype = DType::kUInt32, .in_place = true},
      {.count = 1, .protocol = protocol, .dtype = DType::kUInt8, .offset = 1},
      {.count = 19, .protocol = protocol, .dtype = DType::kUInt8, .chunk_bytes = 16, .offset = 3},
      {.count = 6, .protocol = protocol, .in_place = true},
  };
}
std::vector<Call> mixed_calls(unsigned count) {
  std::vector<Call> calls;
  for (std::uint64_t i = 0; i < count; ++i) {
    calls.push_back({.count = 2 + i % 7, .protocol = static_cast<Protocol>(1 + i % 3), .in_place = i % 4 == 3});
    if (i % 5 >= 3) calls.back().algorithm = Algorithm::kOneShot;
  }
  return calls;
}

WorldConfig no_host_calls(unsigned ranks) {
  WorldConfig config;
  config.ranks = ranks;
  config.step_limit = 3'000'000;
  return config;
}

void expect_good(SchedWorld& world, std::uint64_t usual) {
  const Outcome outcome = world.explore(first_seed(), seed_count(usual));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

class LaunchedRow : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Protocols, LaunchedRow,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(1u, 2u, 3u), testing::Values(1u, 2u, 4u)));

TEST_P(LaunchedRow, EveryLaunchOnAStreamGivesTheSumOfTheInputsOfNow) {
  const auto [protocol, ranks, lanes] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  StreamsConfig config;
  config.lanes = lanes;
  config.calls = calls_of(protocol);
  SchedStreams streams(world, config);
  expect_good(world, 100);
}

// The first chunk goes out before the headers, to every peer; rounds, a shorter last one, ring calls in between.
TEST_P(LaunchedRow, OneShotLaunchesBetweenRingLaunchesAreRight) {
  const auto [protocol, ranks, lanes] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  StreamsConfig config;
  config.lanes = lanes;
  config.calls = calls_of(protocol);
  for (std::size_t i = 0; i < config.calls.size(); ++i) {
    if (i != 4) config.calls[i].algorithm = Algorithm::kOneShot;
    if (i % 3 == 0) config.calls[i].dtype = DType::kFloat32;
  }
  SchedStreams streams(world, config);
  expect_good(world, 60);
}

class LaunchedWarps : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Protocols, LaunchedWarps,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(1u, 2u), testing::Values(2u, 3u)));
INSTANTIATE_TEST_SUITE_P(ThreeRanks, LaunchedWarps,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(3u), testing::Values(2u)));

TEST_P(LaunchedWarps, OverTheBarriersOfACtaNoLaneStaysBehindAndEverySumIsRight) {
  const auto [protocol, ranks, teams] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  StreamsConfig config;
  config.lanes = teams * WarpWorker::kTeam;
  config.warps = true;
  config.calls = calls_of(protocol);
  SchedStreams streams(world, config);
  expect_good(world, 50);
}

TEST_P(LaunchedWarps, OneShotOverTheBarriersOfACtaIsRight) {
  const auto [protocol, ranks, teams] = GetParam();
  SchedWorld world(no_host_calls(ranks));
  StreamsConfig config;
  config.lanes = teams * WarpWorker::kTeam;
  config.warps = true;
  config.calls = calls_of(protocol);
  for (Call& call : config.calls) call.algorithm = Algorithm::kOneShot;
  SchedStreams streams(world, config);
  expect_good(world, 50);
}

class LaunchedWrap : public testing::TestWithParam<std::tuple<std::uint64_t, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Starts, LaunchedWrap,
                         testing::Combine(testing::Values(1u, (1ull << 31) - 2, kFlagPeriod - 4, kFlagPeriod - 2,
                                                          kFlagPeriod - 1, kFlagPeriod, (1ull << 32) - 1,
                                                          2 * kFlagPeriod - 3),
                                          testing::Values(2u, 3u)));

TEST_P(LaunchedWrap, LaunchesBeforeAndAfterTheWrapAreRight) {
  const auto [start, ranks] = GetParam();
  for (const bool warps : {false, true}) {
    SchedWorld world(no_host_calls(ranks));
    StreamsConfig config;
    config.lanes = warps ? 4 : 2;
    config.warps = warps;
    config.calls = mixed_calls(9);
    config.first_epoch = config.first_op = start;
    SchedStreams streams(world, config);
    expect_good(world, 50);
  }
}

class LaunchedBeside : public testing::TestWithParam<std::tuple<unsigned, bool>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, LaunchedBeside, testing::Combine(testing::Values(2u, 3u), testing::Bool()));

// Two ways at once on the same ranks, with other epochs and other values; the worker parks and comes back.
TEST_P(LaunchedBeside, AResidentWorkerAndLaunchesOfTheSameRanksDoNotMix) {
  const auto [ranks, warps] = GetParam();
  if (warps && ranks == 3) GTEST_SKIP() << "more threads than the model has";
  WorldConfig host;
  host.ranks = ranks;
  host.ahead = 2;
  host.idle_park_ns = {0, 1000, 100'000'000};
  host.lease_ns = {20'000, 1'000'000'000};
  host.step_limit = 3'000'000;
  host.calls = mixed_calls(6);
  host.calls[4].after_stream = ranks == 2;
  SchedWorld world(host);
  StreamsConfig config;
  config.lanes = warps ? 4 : ranks == 2 ? 2 : 3;
  config.warps = warps;
  config.calls = mixed_calls(6);
  config.first_epoch = 1;  // flags of both ways meet
  SchedStreams streams(world, config);
  expect_good(world, 100);
}

/// Two streams a rank take turns; nothing orders their calls but that the turn was free again. Equal on all ranks.
class InTurn {
 public:
  InTurn(unsigned ranks, unsigned lanes, std::vector<Call> calls, RunLaunched run = sched_launched)
      : world_(no_host_calls(ranks)), streams_(world_, config(ranks, lanes, std::move(calls)), run) {}
  Outcome explore(std::uint64_t first, std::uint64_t seeds, Weakening weakening = {}) {
    return world_.explore(first, seeds, weakening);
  }

 private:
  StreamsConfig config(unsigned ranks, unsigned lanes, std::vector<Call> calls) {
    StreamsConfig config;
    config.lanes = lanes;
    config.calls = std::move(calls);
    config.pauses = 10;
    for (unsigned r = 0; r < ranks; ++r) {
      for (std::size_t first : {0, 1}) {
        StreamPlan plan{r, {}};
        for (std::size_t call = first; call < config.calls.size(); call += 2) plan.calls.push_back(call);
        config.streams.push_back(plan);
      }
    }
    config.may_launch = [this](unsigned stream, std::size_t call) {
      const unsigned r = stream / 2;
      return streams_.taken(r) == call && streams_.turn(r) == device::kTurnFree;
    };
    return config;
  }

  SchedWorld world_;
  SchedStreams streams_;
};

class LaunchedInTurn : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {
 protected:
  static std::vector<Call> calls(Protocol protocol) {
    std::vector<Call> calls = calls_of(protocol);
    for (Call& call : calls) call.count += 1;
    return calls;
  }
  static void expect_found(Weakening weakening) {
    const auto [protocol, ranks, lanes] = GetParam();
    InTurn bad(ranks, lanes, calls(protocol));
    const Outcome found = bad.explore(1, 5000, weakening);
    ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
    std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
  }
};
INSTANTIATE_TEST_SUITE_P(Protocols, LaunchedInTurn,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 2u)));

TEST_P(LaunchedInTurn, CallsOfTwoStreamsThatNothingButTheTurnOrdersAreRight) {
  const auto [protocol, ranks, lanes] = GetParam();
  InTurn good(ranks, lanes, calls(protocol));
  const Outcome outcome = good.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST_P(LaunchedInTurn, MutantTheTurnIsPassedOnRelaxed) { expect_found({Edge::kTurn, Side::kRelease}); }

TEST_P(LaunchedInTurn, MutantTheTurnIsTakenRelaxed) { expect_found({Edge::kTurn, Side::kAcquire}); }

}  // namespace
}  // namespace ringbell::test
