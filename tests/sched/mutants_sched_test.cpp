// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
//
// The explorer finds what it is for: each mutant weakens one order or deletes one instruction, and is found within
// 5,000 seeds; the same scenario without it passes.
#include <cstdio>

#include <gtest/gtest.h>

#include "device/worker/loop.hpp"
#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using device::Mutant;

template <Mutant kPlanted>
void mutant_worker(const device::WorkerContext& ctx, SchedGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<kPlanted>>(ctx, group, generation);
}

void expect_found(const WorldConfig& config, RunWorker mutant, Weakening weakening = {}) {
  SchedWorld good(config);
  const Outcome passed = good.explore(first_seed(), seed_count());
  EXPECT_FALSE(passed.failed) << "without the mutant: " << passed.report;
  SchedWorld bad(config, mutant);
  const Outcome found = bad.explore(1, 5000, weakening);
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
  EXPECT_NE(found.report.find("seed "), std::string::npos);
}
void expect_found(const WorldConfig& config, Weakening weakening) { expect_found(config, sched_worker, weakening); }

WorldConfig ring(Protocol protocol, unsigned ranks = 2, unsigned lanes = 1) {
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = lanes;
  const std::uint32_t chunk = protocol == Protocol::kLL128 ? 240 : 32;
  config.calls = {{.count = 6, .protocol = protocol},
                  {.count = chunk == 240 ? 70ull : 17ull, .protocol = protocol, .chunk_bytes = chunk},
                  {.count = 5, .protocol = protocol, .dtype = DType::kUInt32, .in_place = true},
                  {.count = 12, .protocol = protocol, .dtype = DType::kUInt32}};
  return config;
}

class EveryProtocol : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Mutants, EveryProtocol, testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple));

TEST(Mutants, OneLlFlagTested) { expect_found(ring(Protocol::kLL), mutant_worker<Mutant::kOneLlFlag>); }

/// Calls of one round in which a lane has a line at most, with a lane to spare for headers.
WorldConfig short_calls() {
  WorldConfig config;
  config.ranks = 3;
  config.lanes = 4;
  config.ahead = 2;
  for (const std::uint64_t count : {6, 5, 6, 1, 6, 4}) config.calls.push_back({.count = count});
  return config;
}

TEST(Mutants, OneLlFlagTestedInAShortCall) { expect_found(short_calls(), mutant_worker<Mutant::kOneLlFlag>); }

TEST(Mutants, CreditReturnedBeforeTheSlotIsReadInAShortCall) {
  expect_found(short_calls(), mutant_worker<Mutant::kCreditBeforeRead>);
}

TEST(Mutants, NoBarrierBetweenEpochsOfShortCalls) { expect_found(short_calls(), {Edge::kSlotRead, Side::kBarrier}); }

TEST(Mutants, NoLl128Reload) { expect_found(ring(Protocol::kLL128), mutant_worker<Mutant::kNoLl128Reload>); }

TEST(Mutants, Ll128FlagBeforeItsData) { expect_found(ring(Protocol::kLL128), {Edge::kLl128Flag, Side::kRelease}); }

TEST(Mutants, SimpleTailRelaxed) { expect_found(ring(Protocol::kSimple), {Edge::kTail, Side::kRelease}); }

TEST(Mutants, SimpleTailReadRelaxed) { expect_found(ring(Protocol::kSimple), {Edge::kTail, Side::kAcquire}); }

// Three ranks: with two, no rank can be a whole lap of slots ahead.
TEST_P(EveryProtocol, CreditReturnedBeforeTheSlotIsRead) {
  expect_found(ring(GetParam(), 3, 2), mutant_worker<Mutant::kCreditBeforeRead>);
}

TEST_P(EveryProtocol, NoBarrierBetweenEpochs) {
  expect_found(ring(GetParam(), 3, 2), {Edge::kSlotRead, Side::kBarrier});
}

TEST_P(EveryProtocol, UserMemoryReadWithoutAcquireAfterTheCommand) {
  expect_found(ring(GetParam()), {Edge::kCommand, Side::kAcquire});
}

TEST_P(EveryProtocol, CompletionBeforeTheOutput) {
  expect_found(ring(GetParam()), {Edge::kCompletion, Side::kRelease});
}

TEST_P(EveryProtocol, NextCommandBeforeTheLastCompleted) {
  WorldConfig config = ring(GetParam(), 2, 2);
  config.ahead = 2;
  const bool ll128 = GetParam() == Protocol::kLL128;
  config.calls.clear();
  // One round and two by turns; none so short that lane 0 does it alone.
  for (const std::uint64_t count : {40, 70, 40, 70}) {
    config.calls.push_back(
        {.count = ll128 ? count : count / 5, .protocol = GetParam(), .chunk_bytes = ll128 ? 240u : 32u});
  }
  expect_found(config, mutant_worker<Mutant::kNextBeforeComplete>);
}

// Nobody but submit looks at the worker's state: a wake-up lost there is lost.
WorldConfig park() {
  WorldConfig config;
  config.ranks = 1;
  config.wait_claims = false;
  config.idle_park_ns = {0, 1000, 10'000};
  for (std::uint64_t i = 0; i < 6; ++i) config.calls.push_back({.count = i % 3});
  return config;
}

TEST(Mutants, ParkWithoutTheReread) { expect_found(park(), mutant_worker<Mutant::kParkWithoutReread>); }

TEST(Mutants, ParkWithoutTheHostsFence) { expect_found(park(), {Edge::kPark, Side::kHost}); }

TEST(Mutants, ParkWithoutTheWorkersFence) { expect_found(park(), {Edge::kPark, Side::kWorker}); }

// A layout for no channel puts the slots of all formats at one address; credits of LL and LL128 stay apart.
TEST(Mutants, TwoFormatsShareBytes) {
  WorldConfig config;
  for (int i = 0; i < 8; ++i) {
    config.calls.push_back({.count = 4, .protocol = i % 2 == 0 ? Protocol::kLL : Protocol::kLL128});
  }
  SchedWorld good(config);
  const Outcome passed = good.explore(first_seed(), seed_count());
  EXPECT_FALSE(passed.failed) << passed.report;
  config.layout.channels = 0;
  ASSERT_EQ(config.layout.ll_slot(0, 0), config.layout.ll128_slot(0, 0));
  SchedWorld bad(config);
  const Outcome found = bad.explore(1, 5000);
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
}

}  // namespace
}  // namespace ringbell::test
