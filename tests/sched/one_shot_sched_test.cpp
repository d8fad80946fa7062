// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// One-shot under every schedule that the seeds draw: alone, between ring calls, in rounds, at the wraps; and what holds
// it together, taken away piece by piece.
#include <gtest/gtest.h>

#include "device/worker/loop.hpp"
#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using device::Mutant;

constexpr std::uint64_t kFlagPeriod = 0xffffffff;

template <Mutant kPlanted>
void mutant_worker(const device::WorkerContext& ctx, SchedGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<kPlanted>>(ctx, group, generation);
}

void expect_right(const WorldConfig& config, std::uint64_t usual = 100) {
  SchedWorld world(config);
  const Outcome outcome = world.explore(first_seed(), seed_count(usual));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

void expect_found(const WorldConfig& config, RunWorker mutant, Weakening weakening = {}) {
  expect_right(config);
  SchedWorld bad(config, mutant);
  const Outcome found = bad.explore(1, 5000, weakening);
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
}
void expect_found(const WorldConfig& config, Weakening weakening) { expect_found(config, sched_worker, weakening); }

/// float32 is folded as lines arrive, integers once they have.
Call one_shot(std::uint64_t count, Protocol protocol, std::uint32_t chunk_bytes = 480, DType dtype = DType::kFloat32) {
  return {.count = dtype == DType::kFloat32 ? 2 * count : count,
          .protocol = protocol,
          .dtype = dtype,
          .chunk_bytes = chunk_bytes,
          .algorithm = Algorithm::kOneShot};
}

/// One round, several with a shorter last one, several whole ones, in place, unaligned.
WorldConfig calls_of(Protocol protocol, unsigned ranks, unsigned lanes) {
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = lanes;
  config.ahead = 2;
  const std::uint32_t chunk = protocol == Protocol::kLL128 ? 240 : 32;
  const std::uint64_t words = chunk / 8;
  config.calls = {one_shot(3, protocol), one_shot(2 * words + 1, protocol, chunk),
                  one_shot(1, protocol, chunk, DType::kUInt64), one_shot(2 * words, protocol, chunk, DType::kUInt64),
                  one_shot(5, protocol)};
  config.calls[1].in_place = true;
  config.calls[4].dtype = DType::kUInt32;
  config.calls[4].offset = 4;
  return config;
}

class OneShotSched : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {};

TEST_P(OneShotSched, CallsOfOneAndSeveralRoundsAreRight) {
  const auto [protocol, ranks, lanes] = GetParam();
  expect_right(calls_of(protocol, ranks, lanes));
}

// The slot sets' epoch belongs to all formats; headers and user buffers to both algorithms.
TEST_P(OneShotSched, BetweenRingCallsAndOtherFormatsItIsRight) {
  const auto [protocol, ranks, lanes] = GetParam();
  WorldConfig config = calls_of(protocol, ranks, lanes);
  for (std::size_t i = 0; i < config.calls.size(); i += 2) {
    config.calls[i].protocol = static_cast<Protocol>(1 + (static_cast<unsigned>(protocol) + i / 2) % 3);
  }
  config.calls.insert(config.calls.begin() + 1, {.count = 4, .protocol = protocol});
  config.calls.insert(config.calls.begin() + 4, {.count = 1, .protocol = Protocol::kLL, .of_last_output = true});
  expect_right(config);
}

INSTANTIATE_TEST_SUITE_P(Forms, OneShotSched,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 3u)));

class OneShotWarps : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Forms, OneShotWarps, testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple));

TEST_P(OneShotWarps, TeamsThatComeApartAreRight) {
  WorldConfig config = calls_of(GetParam(), 2, 6);
  config.warps = true;
  expect_right(config);
}

TEST_P(OneShotWarps, ParksAndLeasesInBetweenLoseNothing) {
  WorldConfig config = calls_of(GetParam(), 2, 2);
  config.idle_park_ns = {0, 1000, 10'000};
  config.lease_ns = {0, 2000, 1'000'000};
  expect_right(config);
}

class OneShotWraps : public testing::TestWithParam<std::tuple<std::uint64_t, Protocol>> {};

TEST_P(OneShotWraps, CallsBeforeAndAfterAreRight) {
  const auto [start, protocol] = GetParam();
  WorldConfig config = calls_of(protocol, 2, 2);
  config.first_epoch = config.first_op = start;
  config.calls[2].protocol = Protocol::kLL;  // lines of a long message, not touched by short ones, meet the flag again
  expect_right(config);
}

INSTANTIATE_TEST_SUITE_P(Starts, OneShotWraps,
                         testing::Combine(testing::Values(1u, (1ull << 31) - 2, kFlagPeriod - 4, kFlagPeriod - 2,
                                                          kFlagPeriod - 1, kFlagPeriod, (1ull << 32) - 1,
                                                          2 * kFlagPeriod - 3, (1ull << 63) - 3),
                                          testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple)));

// ---- what it rests on -----------------------------------------------------------------------------------------------

WorldConfig one_set(Protocol protocol, unsigned ranks) {
  WorldConfig config = calls_of(protocol, ranks, 1);
  config.one_direct_set = true;
  return config;
}

class OneShotMutants : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Forms, OneShotMutants, testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple));

TEST_P(OneShotMutants, OneSlotSetTooFew) {
  expect_right(calls_of(GetParam(), 3, 1));
  SchedWorld bad(one_set(GetParam(), 3));
  const Outcome found = bad.explore(1, 5000);
  EXPECT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
}

TEST_P(OneShotMutants, CompletionBeforeTheOutput) {
  expect_found(calls_of(GetParam(), 2, 1), {Edge::kCompletion, Side::kRelease});
}

TEST(OneShotMutantsOf, OneLlFlagTested) {
  expect_found(calls_of(Protocol::kLL, 2, 1), mutant_worker<Mutant::kOneLlFlag>);
}

TEST(OneShotMutantsOf, Ll128FlagBeforeItsData) {
  expect_found(calls_of(Protocol::kLL128, 2, 1), {Edge::kLl128Flag, Side::kRelease});
}

TEST(OneShotMutantsOf, SimpleTailRelaxed) {
  expect_found(calls_of(Protocol::kSimple, 2, 1), {Edge::kTail, Side::kRelease});
}

TEST(OneShotMutantsOf, SimpleTailReadRelaxed) {
  expect_found(calls_of(Protocol::kSimple, 2, 1), {Edge::kTail, Side::kAcquire});
}

TEST(OneShotMutantsOf, SimpleTailBeforeTheOtherLanesHaveStored) {
  expect_found(calls_of(Protocol::kSimple, 2, 3), {Edge::kSlotFill, Side::kBarrier});
}

/// Lanes that have no line in the last round of the first call may still read the one before it when the peer begins
/// the second.
WorldConfig short_last_round() {
  WorldConfig config;
  config.lanes = 3;
  config.ahead = 2;
  for (int i = 0; i < 3; ++i) config.calls.push_back(one_shot(9, Protocol::kLL, 64));
  return config;
}

TEST(OneShotMutantsOf, LanesWithoutALineInAShortLastRoundDoNotMeet) {
  expect_found(short_last_round(), mutant_worker<Mutant::kNoMeetBeforeShort>);
}

/// A long message before the wrap, short ones over it, and after it a long one whose flag is that of the first.
WorldConfig around_the_wrap() {
  WorldConfig config;
  config.lanes = 2;
  config.ahead = 2;
  config.first_epoch = kFlagPeriod - 2;
  for (const std::uint64_t count : {20, 20, 1, 1, 20, 20}) config.calls.push_back(one_shot(count, Protocol::kLL));
  return config;
}

/// Over the wrap in a long LL call, and past it in a call of another format.
Outcome explore_cleaning(RunWorker run) {
  WorldConfig config = around_the_wrap();
  config.calls.resize(2);
  config.calls.push_back(one_shot(1, Protocol::kSimple));
  SchedWorld world(config, run);
  world.check_after([](SchedWorld& after) -> std::string {
    const device::WorkerContext& ctx = after.rank(0).ctx;
    const auto* words = reinterpret_cast<const std::uint64_t*>(ctx.window[0] + ctx.direct[0].first);
    for (std::uint64_t i = 0; i < device::kDirectSets * ctx.direct[0].set_bytes / 8; ++i) {
      if (words[i] >> 32 > 100) return "word " + std::to_string(i) + " still has a flag from before the wrap";
    }
    return {};
  });
  return world.explore(first_seed(), seed_count(100));
}

TEST(OneShotClean, BothSetsAreCleanAfterTheWrap) {
  const Outcome outcome = explore_cleaning(sched_worker);
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST(OneShotClean, SetsThatAreNotZeroedAreFound) {
  const Outcome outcome = explore_cleaning(mutant_worker<Mutant::kDirectNotCleaned>);
  EXPECT_TRUE(outcome.failed) << "the check must be able to fail";
}

TEST(OneShotClean, ZeroesThatComeLateAreFound) { expect_found(around_the_wrap(), {Edge::kSlotClean, Side::kWorker}); }

}  // namespace
}  // namespace ringbell::test
