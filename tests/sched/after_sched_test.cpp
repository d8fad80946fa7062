// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// Host-issued calls after a stream, explored: the stream writes the input and makes the command whole at any time,
// whoever parks, submits, waits or only serves. Never lost, never early, in order; each mutant is found within 5,000
// seeds.
#include <cstdio>
#include <tuple>

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

/// One rank. 'a': a call after the stream, 'r': a call that is ready.
WorldConfig alone(const std::string& calls, unsigned lanes = 1) {
  WorldConfig config;
  config.ranks = 1;
  config.lanes = lanes;
  config.queue_depth = 4;
  config.ahead = 2;
  config.idle_park_ns = {0, 1000, 10'000};
  for (const char call : calls) {
    config.calls.push_back({.count = 1 + config.calls.size() % 3, .after_stream = call == 'a'});
  }
  return config;
}

void expect_good(SchedWorld& world, std::uint64_t launches_per_seed = 0) {
  const Outcome outcome = world.explore(first_seed(), seed_count());
  EXPECT_FALSE(outcome.failed) << outcome.report;
  if (outcome.seeds >= 100) {
    EXPECT_GE(outcome.launches, launches_per_seed * outcome.seeds) << "the worker hardly parks";
  }
}

void expect_found(const WorldConfig& config, RunWorker mutant, Weakening weakening = {}) {
  SchedWorld good(config);
  expect_good(good);
  SchedWorld bad(config, mutant);
  const Outcome found = bad.explore(1, 5000, weakening);
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
}

class AfterSched : public testing::TestWithParam<unsigned> {};  // lanes
INSTANTIATE_TEST_SUITE_P(Lanes, AfterSched, testing::Values(1u, 2u));

// The stream's store tells nobody: who waits must find it, whatever the worker did meanwhile.
TEST_P(AfterSched, OnlyTheWaiterLooksAndNoCallIsLost) {
  SchedWorld world(alone("araarraa", GetParam()));
  expect_good(world, 2);
}

TEST_P(AfterSched, OnlyTheServiceLooksAndNoCallIsLost) {
  WorldConfig config = alone("ararraaa", GetParam());
  config.wait_claims = config.wait_claims_after = false;
  config.service = true;
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST_P(AfterSched, WaiterAndServiceRaceToLaunchAndOneOfThemDoes) {
  WorldConfig config = alone("aararraa", GetParam());
  config.service = true;
  config.lease_ns = {0, 2000, 1'000'000'000};
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST_P(AfterSched, ReadyCallsAreWokenBySubmitAloneWithUnreadyOnesAroundThem) {
  WorldConfig config = alone("rararara", GetParam());
  config.wait_claims = false;
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST_P(AfterSched, AFullQueueOfUnreadyCallsKeepsItsOrderOverTheWrapOfSlotsAndFlags) {
  for (const std::uint64_t first : {0ull, 0xfffffffdull}) {
    WorldConfig config = alone("aaaaaraaaaraaa", GetParam());
    config.ahead = 4;
    config.first_seq = first;
    SchedWorld world(config);
    expect_good(world);
  }
}

TEST_P(AfterSched, BurstsEndWithUnreadyCallsBehindThem) {
  WorldConfig config = alone("raararaa", GetParam());
  for (Call& call : config.calls) call.flags = device::kFlagLastOfBurst;
  SchedWorld world(config);
  expect_good(world, 2);
}

/// Each last store waits until a worker that was there has parked, three quarters of the command before its eyes.
WorldConfig stored_when_parked(SchedWorld** self, unsigned lanes) {
  WorldConfig config = alone("rarara", lanes);
  config.step_limit = 100'000;
  config.may_store = [self](unsigned r, std::size_t) {
    const SchedWorld::Rank& rank = (*self)->rank(r);
    return rank.generation != 0 && device::state_residency(rank.ctx.control->state.state) == device::Residency::kParked;
  };
  return config;
}

TEST_P(AfterSched, AnUnreadyCallHoldsUpNoIdlePark) {
  SchedWorld* self = nullptr;
  SchedWorld world(stored_when_parked(&self, GetParam()));
  self = &world;
  expect_good(world, 2);
}

// Nothing that is not ready brings a parked worker back.
TEST_P(AfterSched, NothingIsLaunchedForACallThatIsNotReady) {
  WorldConfig config = alone("aaa", GetParam());
  config.service = true;
  config.idle_park_ns = {1'000'000'000};
  SchedWorld* self = nullptr;
  config.may_store = [&self](unsigned r, std::size_t index) {
    if (index == 0 && self->rank(r).generation != 0) self->scheduler().fail("launched for a call that is not ready");
    return true;
  };
  SchedWorld world(config);
  self = &world;
  expect_good(world);
}

class AfterRanks : public testing::TestWithParam<std::tuple<Protocol, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, AfterRanks,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u)));

WorldConfig ranks(Protocol protocol, unsigned ranks) {
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = 2;
  config.queue_depth = 4;
  config.ahead = 2;
  config.idle_park_ns = {0, 1000, 100'000'000};
  for (std::uint64_t i = 0; i < 6; ++i) {
    config.calls.push_back({.count = 3 + i, .protocol = protocol, .in_place = i % 3 == 2, .after_stream = i % 4 != 3});
  }
  return config;
}

TEST_P(AfterRanks, NoRankReadsItsInputBeforeItsStreamHasWrittenIt) {
  const auto [protocol, world_size] = GetParam();
  SchedWorld world(ranks(protocol, world_size));
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

// Ranks differ in what comes after a stream: only their own host and worker know.
TEST_P(AfterRanks, OneRankComesAfterAStreamAndTheOthersDoNot) {
  const auto [protocol, world_size] = GetParam();
  WorldConfig config = ranks(protocol, world_size);
  config.lease_ns = {20'000, 1'000'000'000};
  config.change_call = [](Call call, unsigned rank, std::size_t index) {
    if (call.after_stream && rank != 0 && index % 2 == 0) call.after_stream = false;
    return call;
  };
  SchedWorld world(config);
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

TEST_P(AfterRanks, MutantTheStreamsStoreIsRelaxed) {
  const auto [protocol, world_size] = GetParam();
  expect_found(ranks(protocol, world_size), sched_worker, {Edge::kCommand, Side::kStream});
}

TEST(AfterMutants, TheCommandsPollIsRelaxed) {
  expect_found(alone("ararar"), sched_worker, {Edge::kCommand, Side::kAcquire});
}

// A ready command in front of unready ones is lost: submit looked while the worker said RUNNING, and nobody else looks.
TEST(AfterMutants, ParkWithoutTheRereadLosesAReadyCall) {
  WorldConfig config = alone("rrarrarr");
  config.wait_claims = false;
  expect_found(config, mutant_worker<Mutant::kParkWithoutReread>);
}

TEST(AfterMutants, ParkWithoutTheHostsFenceLosesAReadyCall) {
  WorldConfig config = alone("rrarrarr");
  config.wait_claims = false;
  expect_found(config, sched_worker, {Edge::kPark, Side::kHost});
}

TEST(AfterMutants, ParkWithoutTheWorkersFenceLosesAReadyCall) {
  WorldConfig config = alone("rrarrarr");
  config.wait_claims = false;
  expect_found(config, sched_worker, {Edge::kPark, Side::kWorker});
}

TEST(AfterMutants, AParkThatAsksForOneQuadNeverComes) {
  SchedWorld* self = nullptr;
  const WorldConfig config = stored_when_parked(&self, 1);
  SchedWorld good(config);
  self = &good;
  expect_good(good);
  SchedWorld bad(config, mutant_worker<Mutant::kParkAsksOneQuad>);
  self = &bad;
  const Outcome found = bad.explore(1, 5000);
  ASSERT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
  std::printf("found after %llu seeds: %s\n", static_cast<unsigned long long>(found.seeds), found.report.c_str());
}

}  // namespace
}  // namespace ringbell::test
