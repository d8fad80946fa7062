// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// Queue and residency, explored: a command is never lost, whoever parks and whoever launches.
#include <gtest/gtest.h>

#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using Host = SchedOps<>;

WorldConfig queue_only(std::uint64_t calls) {
  WorldConfig config;
  config.ranks = 1;
  config.idle_park_ns = {0, 1000, 10'000};
  for (std::uint64_t i = 0; i < calls; ++i) config.calls.push_back({.count = i % 3});
  return config;
}

void expect_good(SchedWorld& world, std::uint64_t launches_per_seed = 0) {
  const Outcome outcome = world.explore(first_seed(), seed_count());
  EXPECT_FALSE(outcome.failed) << outcome.report;
  if (outcome.seeds >= 100) {
    EXPECT_GE(outcome.launches, launches_per_seed * outcome.seeds);
  }
}

class ParkSched : public testing::TestWithParam<unsigned> {};  // lanes

// Submit looks once after its fence, and nobody ever looks again.
TEST_P(ParkSched, SubmitAloneWakesAnIdleWorker) {
  WorldConfig config = queue_only(8);
  config.lanes = GetParam();
  config.wait_claims = false;
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST_P(ParkSched, BurstEndParksAndTheNextSubmitWakes) {
  WorldConfig config = queue_only(8);
  config.lanes = GetParam();
  config.wait_claims = false;
  config.ahead = 2;
  for (Call& call : config.calls) call.flags = device::kFlagLastOfBurst;
  SchedWorld world(config);
  expect_good(world, 2);
}

// The lease ends with commands pending: whoever waits launches.
TEST_P(ParkSched, LeaseParksWithCommandsPending) {
  WorldConfig config = queue_only(8);
  config.lanes = GetParam();
  config.lease_ns = {0, 2000};
  config.ahead = 2;
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST_P(ParkSched, OneSubmitAndThenOnlyTheServiceLooks) {
  WorldConfig config = queue_only(6);
  config.lanes = GetParam();
  config.wait_claims = false;
  config.service = true;
  config.ahead = 2;
  config.lease_ns = {0, 1'000'000'000};
  SchedWorld world(config);
  world.add_thread("parker", false, [](SchedWorld& w) {
    const auto& ctx = w.rank(0).ctx;
    for (std::uint64_t request = 0;; request ^= device::kRequestPark) {
      Host::store_relaxed(&ctx.control->control.request, request);
      for (std::uint32_t pauses = w.scheduler().random().below(100); pauses != 0; --pauses) Host::pause(1);
    }
  });
  expect_good(world);
}

TEST_P(ParkSched, ParkRequestIsAnswered) {
  WorldConfig config = queue_only(6);
  config.lanes = GetParam();
  config.idle_park_ns = {1'000'000'000};
  SchedWorld world(config);
  world.add_thread("parker", true, [](SchedWorld& w) {
    const auto& ctx = w.rank(0).ctx;
    for (int i = 0; i < 3; ++i) {
      Host::store_relaxed(&ctx.control->control.request, device::kRequestPark);
      while (device::state_residency(Host::load_acquire(&ctx.control->state.state, Edge::kState)) !=
             device::Residency::kParked) {
        Host::pause(1);
      }
      Host::store_relaxed(&ctx.control->control.request, 0);
    }
  });
  expect_good(world);
}

// While held, neither idleness nor the lease parks; exit does.
TEST_P(ParkSched, HeldWorkerStaysUntilExit) {
  WorldConfig config = queue_only(4);
  config.lanes = GetParam();
  config.idle_park_ns = config.lease_ns = {0};
  SchedWorld* self = nullptr;
  config.may_submit = [&self](unsigned, std::size_t) {
    return Host::load_acquire(&self->rank(0).ctx.control->control.request, Edge::kStart) != 0;
  };
  SchedWorld world(config);
  self = &world;
  world.add_thread("holder", true, [](SchedWorld& w) {
    const auto& ctx = w.rank(0).ctx;
    Host::store_release(&ctx.control->control.request, device::kRequestHold, Edge::kStart);
    const auto& last = ctx.completions[(w.config().calls.size() - 1) % w.config().queue_depth];
    while (Host::load_acquire(&last.word, Edge::kCompletion) >> 8 != w.config().calls.size()) Host::pause(1);
    if (w.rank(0).generation != 1) w.scheduler().fail("a held worker was launched again");
    for (int i = 0; i < 50; ++i) Host::pause(1);
    Host::store_relaxed(&ctx.control->control.request, device::kRequestExit);
    // A waiter that has not seen its completion yet may launch once more; that worker leaves at once.
    for (;;) {
      const std::uint64_t state = Host::load_acquire(&ctx.control->state.state, Edge::kState);
      const bool parked = device::state_residency(state) == device::Residency::kParked;
      if (parked && device::state_reason(state) == device::ParkReason::kExit) break;
      if (parked) w.scheduler().fail("a held worker parked for another reason than exit");
      Host::pause(1);
    }
  });
  expect_good(world);
}

INSTANTIATE_TEST_SUITE_P(Lanes, ParkSched, testing::Values(1u, 2u));

// Two threads of one host: one launch a generation (the world checks it), and no command is lost between them.
TEST(LaunchSched, TwoHostThreadsRaceToLaunch) {
  WorldConfig config = queue_only(8);
  config.queue_depth = 8;
  config.applications = 2;
  config.wait_claims = false;
  for (Call& call : config.calls) call.count = 0;
  SchedWorld world(config);
  expect_good(world, 2);
}

TEST(LaunchSched, TwoRanksParkByTheHeadersParkBit) {
  WorldConfig config;
  config.lanes = 2;
  config.ahead = 2;
  config.lease_ns = {0, 50'000, 1'000'000'000};
  for (std::uint64_t i = 0; i < 6; ++i) {
    config.calls.push_back({.count = i % 4, .protocol = static_cast<Protocol>(1 + i % 3)});
  }
  SchedWorld world(config);
  expect_good(world, 3);
}

}  // namespace
}  // namespace ringbell::test
