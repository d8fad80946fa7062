// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// Calls that cannot succeed, explored: every rank gets the error, and the record names what it should.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

using device::Edge;
using device::WaitRecord;
using Host = SchedOps<>;

class FailureSched : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {
 protected:
  static WorldConfig config(std::uint64_t count) {
    const auto [protocol, ranks, lanes] = GetParam();
    WorldConfig config;
    config.ranks = ranks;
    config.lanes = lanes;
    config.calls = {{.count = 3, .protocol = protocol}, {.count = count, .protocol = protocol}};
    return config;
  }
  static void expect_good(SchedWorld& world) {
    const Outcome outcome = world.explore(first_seed(), seed_count(40));
    EXPECT_FALSE(outcome.failed) << outcome.report;
  }
};

std::string check_counts(SchedWorld& world, std::uint64_t a, std::uint64_t b) {
  for (unsigned r = 0; r < world.config().ranks; ++r) {
    const WaitRecord& record = world.rank(r).ctx.control->way[device::kHostWay].failure;
    const bool named =
        (record.my_count == a && record.peer_count == b) || (record.my_count == b && record.peer_count == a);
    if (record.status == Status::kMismatch && record.valid == record.seq + 1 && record.seq == 1 && named) continue;
    return "rank " + std::to_string(r) + "'s record: status " + std::to_string(static_cast<int>(record.status)) +
           ", seq " + std::to_string(record.seq) + ", counts " + std::to_string(record.my_count) + " and " +
           std::to_string(record.peer_count);
  }
  return {};
}

// For gates of the test, not of the model: what memory holds now.
bool broken(SchedWorld& world, unsigned r) {
  return device::state_residency(world.rank(r).ctx.control->state.state) == device::Residency::kBroken;
}

// A rank that still finishes call 0 when another fails in call 1 may report call 0: ranks may differ by one. Calls that
// expect one status wait for each other.
bool first_call_done(SchedWorld& world) {
  for (unsigned r = 0; r < world.config().ranks; ++r) {
    if (world.rank(r).ctx.completions[0].word == 0) return false;
  }
  return true;
}

void await_first_call(SchedWorld& w) {
  for (unsigned r = 0; r < w.config().ranks; ++r) {
    while (Host::load_acquire(&w.rank(r).ctx.completions[0].word, Edge::kCompletion) == 0) Host::pause(1);
  }
}

void abort_after_first_call(SchedWorld& w) {
  await_first_call(w);
  Host::store_release(&w.rank(0).ctx.control->control.abort_code, device::abort_code(Status::kAborted, 0, 0),
                      Edge::kAbort);
}

// The last rank's count differs: by less than a line, by lines, by rounds, from nothing.
TEST_P(FailureSched, DifferentCountsAreAMismatchOnEveryRank) {
  for (const auto& [a, b] : {std::pair{4u, 5u}, {4u, 8u}, {4u, 20u}, {20u, 3u}, {0u, 3u}, {3u, 0u}}) {
    WorldConfig config = this->config(a);
    config.change_call = [&config, b = b](Call call, unsigned rank, std::size_t index) {
      if (index != 1) return call;
      call.expected = Status::kMismatch;
      if (rank + 1 == config.ranks) call.count = b;
      return call;
    };
    SchedWorld* self = nullptr;
    config.may_submit = [&self](unsigned, std::size_t index) { return index == 0 || first_call_done(*self); };
    SchedWorld world(config);
    self = &world;
    world.check_after([a = a, b = b](SchedWorld& w) { return check_counts(w, a, b); });
    expect_good(world);
  }
}

TEST_P(FailureSched, DifferentProtocolsAreAMismatchOnEveryRank) {
  WorldConfig config = this->config(9);
  config.change_call = [](Call call, unsigned rank, std::size_t index) {
    if (index != 1) return call;
    call.expected = Status::kMismatch;
    if (rank == 0) call.protocol = call.protocol == Protocol::kSimple ? Protocol::kLL : Protocol::kSimple;
    return call;
  };
  SchedWorld* self = nullptr;
  config.may_submit = [&self](unsigned, std::size_t index) { return index == 0 || first_call_done(*self); };
  SchedWorld world(config);
  self = &world;
  world.check_after([](SchedWorld& w) { return check_counts(w, 9, 9); });
  expect_good(world);
}

TEST_P(FailureSched, AbortEndsAWaitOnEveryRank) {
  WorldConfig config = this->config(9);
  config.change_call = [](Call call, unsigned, std::size_t index) {
    if (index == 1) call.expected = Status::kAborted;
    return call;
  };
  SchedWorld* self = nullptr;
  config.may_submit = [&self](unsigned rank, std::size_t index) { return index == 0 || rank == 0 || broken(*self, 0); };
  SchedWorld world(config);
  self = &world;
  world.add_thread("aborter", true, abort_after_first_call);
  expect_good(world);
}

TEST_P(FailureSched, AbortReachesAnIdleWorker) {
  WorldConfig config = this->config(9);
  config.change_call = [](Call call, unsigned, std::size_t index) {
    if (index == 1) call.expected = Status::kAborted;
    return call;
  };
  SchedWorld* self = nullptr;
  config.may_submit = [&self](unsigned, std::size_t index) { return index == 0 || broken(*self, 0); };
  SchedWorld world(config);
  self = &world;
  world.add_thread("aborter", true, abort_after_first_call);
  expect_good(world);
}

// Rank 0 has made one call, its worker leaves for whatever reason, and the others wait for it in the next call, without
// a time-out of their own.
WorldConfig abort_while_parking(WorldConfig config, SchedWorld*& self) {
  config.idle_park_ns = {0, 1000, 10'000};
  config.lease_ns = {0, 1'000'000'000};
  config.service = true;
  config.change_call = [](Call call, unsigned rank, std::size_t index) {
    if (index == 1) call.expected = Status::kAborted;
    if (index == 0 && rank == 0) call.flags = device::kFlagLastOfBurst;
    return call;
  };
  config.may_submit = [&self](unsigned rank, std::size_t index) { return index == 0 || rank != 0 || broken(*self, 0); };
  return config;
}

void abort_while_parking_thread(SchedWorld& w) {
  SeededRandom& random = w.scheduler().random();
  await_first_call(w);
  for (std::uint32_t pauses = random.below(random.one_in(2) ? 100 : 4); pauses != 0; --pauses) Host::pause(1);
  w.abort(0, device::abort_code(Status::kAborted, 0, 0));
}

TEST_P(FailureSched, AbortOfAWorkerThatIsLeavingReachesThePeers) {
  SchedWorld* self = nullptr;
  WorldConfig config = abort_while_parking(this->config(9), self);
  config.relays_aborts = true;
  SchedWorld world(config);
  self = &world;
  world.add_thread("aborter", true, abort_while_parking_thread);
  expect_good(world);
}

WorldConfig abort_beside_a_scope(const WorldConfig& base, SchedWorld*& self) {
  WorldConfig config = abort_while_parking(base, self);
  config.relays_aborts = true;
  config.scopes = true;
  return config;
}

void keep_away_once(SchedWorld& w) {
  await_first_call(w);
  w.park_and_stay(0);
  for (std::uint32_t pauses = w.scheduler().random().below(50); pauses != 0; --pauses) Host::pause(1);
  w.unpark(0);
}

TEST_P(FailureSched, AbortBesideAScopeReachesThePeers) {
  SchedWorld* self = nullptr;
  SchedWorld world(abort_beside_a_scope(this->config(9), self));
  self = &world;
  world.add_thread("aborter", true, abort_while_parking_thread);
  world.add_thread("keeper", true, keep_away_once);
  expect_good(world);
}

// The scope stays open until all calls have ended.
TEST_P(FailureSched, AbortInsideAnOpenScopeReachesThePeers) {
  SchedWorld* self = nullptr;
  SchedWorld world(abort_beside_a_scope(this->config(9), self));
  self = &world;
  world.add_thread("aborter", true, [](SchedWorld& w) {
    await_first_call(w);
    w.park_and_stay(0);
    w.abort(0, device::abort_code(Status::kAborted, 0, 0));
  });
  expect_good(world);
}

// What the service thread is for: without its look the explorer finds the abort that nobody tells of.
TEST(AbortSched, WithoutTheServicesLookAnAbortIsLost) {
  for (const bool scopes : {false, true}) {
    SchedWorld* self = nullptr;
    WorldConfig config;
    config.calls = {{.count = 3}, {.count = 9}};
    config = abort_while_parking(config, self);
    config.scopes = scopes;
    config.step_limit = 30'000;
    if (scopes) config.lease_ns = config.idle_park_ns = {1'000'000'000};
    SchedWorld world(config);
    self = &world;
    world.add_thread("aborter", true, abort_while_parking_thread);
    if (scopes) world.add_thread("keeper", true, keep_away_once);
    const Outcome found = world.explore(1, 5000);
    EXPECT_TRUE(found.failed) << "not found in " << found.seeds << " seeds";
    EXPECT_NE(found.report.find("no end in sight"), std::string::npos) << found.report;
    std::printf("found after %llu seeds\n", static_cast<unsigned long long>(found.seeds));
  }
}

TEST_P(FailureSched, TimeoutNamesThePeerThatIsAwaited) {
  WorldConfig config = this->config(9);
  config.timeout_ns = 2'000'000;
  config.change_call = [](Call call, unsigned, std::size_t index) {
    if (index == 1) call.expected = Status::kTimeout;
    return call;
  };
  SchedWorld* self = nullptr;
  const unsigned missing = config.ranks - 1;
  config.may_submit = [&self, missing](unsigned rank, std::size_t index) {
    return index == 0 || rank != missing || broken(*self, 0);
  };
  SchedWorld world(config);
  self = &world;
  world.check_after([missing](SchedWorld& w) -> std::string {
    for (unsigned r = 0; r < w.config().ranks; ++r) {
      const WaitRecord& record = w.rank(r).ctx.control->way[device::kHostWay].failure;
      const bool right =
          record.status == Status::kTimeout && record.what != device::WaitFor::kNothing && record.seq == 1;
      if (!right) return "rank " + std::to_string(r) + " has no record of its time-out";
    }
    // Rank 0 waits for a line or credit of a neighbour, or for the header of any peer; with two ranks there is one.
    const WaitRecord& first = w.rank(0).ctx.control->way[device::kHostWay].failure;
    return first.reporter != 0 || (first.peer != 0 && (w.config().ranks > 2 || first.peer == missing))
               ? ""
               : "rank 0 blames rank " + std::to_string(first.peer) + ", rank " + std::to_string(missing) +
                     " is missing";
  });
  expect_good(world);
}

INSTANTIATE_TEST_SUITE_P(Protocols, FailureSched,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 2u)));

}  // namespace
}  // namespace ringbell::test
