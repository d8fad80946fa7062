// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The worker leaves and comes back: when idle, at the end of a lease, when asked; nothing is lost on the way, and the
// counts add up.
#include <algorithm>
#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}

std::uint64_t all_parks(const ParkCounts& p) { return p.idle + p.lease + p.peer_lease + p.request + p.burst_end; }

// No park but the one a test is about.
Config resident_config() {
  Config config = cpu_config();
  config.idle_park_us = 1'000'000'000;
  config.lease_us = 1'000'000'000;
  return config;
}

bool eventually(const std::function<bool()>& what, double seconds = 5) {
  const Stopwatch watch;
  while (!what()) {
    if (watch.seconds() > seconds * patience()) return false;
    sleep_s(0.001);
  }
  return true;
}

std::string sum_of_ones(Communicator& comm, const CallOptions& options = {}) {
  std::int64_t value = 1;
  const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, options);
  if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
  return value == comm.world() ? "" : "wrong sum " + std::to_string(value);
}

TEST(Parking, OneSubmitAndThenNoHostCallEverCompletes) {
  Config config = cpu_config();
  config.idle_park_us = 0;  // parks at once: the submit meets a worker that leaves, again and again
  config.lease_us = 1;
  const Stopwatch watch;
  expect_empty(run_ranks(2, config, [](Communicator& comm) -> std::string {
    for (int call = 0; call < 50; ++call) {
      volatile std::int64_t out = -1;
      std::int64_t in = 1;
      const Ticket ticket = comm.all_reduce(&in, const_cast<std::int64_t*>(&out), 1, DType::kInt64);
      if (ticket.status != Status::kOk) return status_name(ticket.status);
      // Not even test(): the time alone passes. The last look is for the verdict.
      sleep_s(0.004 * patience());
      if (call % 10 == 9) sleep_s(0.1 * patience());
      if (comm.wait(ticket, call % 10 == 9 ? 0 : 5 * patience()) != Status::kOk) {
        return "call " + std::to_string(call) + " needed its caller";
      }
      if (out != 2) return "wrong";
    }
    return "";
  }));
  EXPECT_LT(watch.seconds(), 20 * patience());
}

TEST(Parking, AnIdleWorkerLeavesAfterItsTimeAndIsCounted) {
  Config config = resident_config();
  config.idle_park_us = 1000;
  expect_empty(run_ranks(2, config, [](Communicator& comm) -> std::string {
    for (std::uint64_t round = 1; round <= 5; ++round) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      if (!eventually([&] { return comm.stats().parks.idle >= round; })) return "no idle park";
    }
    const Stats stats = comm.stats();
    if (stats.parks.idle < 5 || all_parks(stats.parks) != stats.parks.idle) return "other parks were counted";
    if (stats.launches != stats.parks.idle) return "launches and parks do not match";
    return "";
  }));
}

TEST(Parking, TheLeaseEndsUnderLoadForTheWholeGroupAndNothingIsLost) {
  Config config = resident_config();
  config.lease_us = 2000;
  const auto stats = run_ranks(3, config, [](Communicator& comm) {
    const Stopwatch watch;
    for (std::uint64_t call = 0; call < 3000 || comm.stats().parks.lease + comm.stats().parks.peer_lease < 3; ++call) {
      // All ranks must make the same calls: the decision to stop is reduced too.
      const Stats now = comm.stats();
      std::int64_t more = call < 3000 || now.parks.lease + now.parks.peer_lease < 3 ? 1 : 0;
      const std::string text = wait_ok(comm, comm.all_reduce(&more, &more, 1, DType::kInt64, ReduceOp::kMax));
      EXPECT_EQ(text, "");
      if (!text.empty() || more == 0 || watch.seconds() > 20 * patience()) break;
    }
    return comm.stats();
  });
  for (const Stats& s : stats) {
    EXPECT_GE(s.parks.lease + s.parks.peer_lease, 3u);
    EXPECT_EQ(all_parks(s.parks), s.parks.lease + s.parks.peer_lease);
    EXPECT_LE(s.launches, all_parks(s.parks) + 1);
  }
}

TEST(Parking, HoldKeepsTheWorkerThroughIdleTimeAndLease) {
  Config config = cpu_config();
  config.idle_park_us = 500;
  config.lease_us = 1000;
  expect_empty(run_ranks(2, config, [](Communicator& comm) -> std::string {
    if (comm.hold() != Status::kOk || comm.hold() != Status::kOk) return "hold";
    if (comm.release() != Status::kOk) return "release";  // counted: one hold is left
    if (std::string text = sum_of_ones(comm); !text.empty()) return text;
    // A worker that parked before it saw the hold does not count.
    const Stats before = comm.stats();
    for (int call = 0; call < 40; ++call) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      sleep_s(0.002);
    }
    const Stats held = comm.stats();
    if (all_parks(held.parks) > all_parks(before.parks) + 1 || held.launches > before.launches + 1)
      return "parked while held";
    if (comm.release() != Status::kOk) return "release";
    if (!eventually([&] { return all_parks(comm.stats().parks) > all_parks(held.parks); }))
      return "stays after release";
    if (comm.release() != Status::kInvalidArgument) return "a release too many was accepted";
    return comm.last_error().find("hold") != std::string::npos ? "" : comm.last_error();
  }));
}

TEST(Parking, ParkReturnsWhenTheWorkerHasLeftAndTheNextCallBringsItBack) {
  expect_empty(run_ranks(2, resident_config(), [](Communicator& comm) -> std::string {
    if (comm.park() != Status::kOk) return "park before the first call";
    for (std::uint64_t round = 1; round <= 20; ++round) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      if (const Status status = comm.park(); status != Status::kOk) return status_name(status);
      const Stats stats = comm.stats();
      if (stats.parks.request != round || all_parks(stats.parks) != round || stats.launches != round) {
        return "round " + std::to_string(round) + ": " + std::to_string(stats.parks.request) + " parks, " +
               std::to_string(stats.launches) + " launches";
      }
    }
    return "";
  }));
}

TEST(Parking, ParkWaitsForTheCallsSubmittedBeforeItAndHasADeadline) {
  SharedWords parked(1);
  expect_empty(run_ranks(2, resident_config(), [&](Communicator& comm) -> std::string {
    if (comm.rank() == 1) {
      if (!parked.await(0, 1)) return "rank 0 never came back from park";
      return sum_of_ones(comm);
    }
    std::int64_t value = 1;
    const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kInt64);
    if (comm.park(0.05) != Status::kAgain) return "parked in the middle of a call";
    if (comm.park_and_stay(0.05) != Status::kAgain) return "parked in the middle of a call, and stays";
    parked[0] = 1;
    if (comm.park() != Status::kOk) return "park";
    return comm.test(ticket) == Status::kOk && value == 2 ? "" : "parked before the call was complete";
  }));
}

TEST(Parking, InAScopeCallsAreQueuedAndRunAfterIt) {
  expect_empty(run_ranks(2, resident_config(), [](Communicator& comm) -> std::string {
    for (int round = 0; round < 10; ++round) {
      std::int64_t values[3] = {1, 1, 1};
      std::array<Ticket, 3> tickets;
      {
        const ParkedScope outer(comm);
        if (outer.status() != Status::kOk) return status_name(outer.status());
        {
          const ParkedScope inner(comm);  // counted
          if (inner.status() != Status::kOk) return status_name(inner.status());
          for (std::size_t i = 0; i < 3; ++i) tickets[i] = comm.all_reduce(&values[i], &values[i], 1, DType::kInt64);
        }
        const std::uint64_t launches = comm.stats().launches;
        sleep_s(0.01);
        if (comm.wait(tickets[0], 0.01) != Status::kAgain) return "ran inside the scope";
        if (comm.stats().launches != launches) return "launched inside the scope";
        if (values[0] != 1) return "wrote inside the scope";
      }
      if (comm.wait_all(tickets) != Status::kOk) return comm.last_error();
      if (values[0] != 2 || values[1] != 2 || values[2] != 2) return "wrong after the scope";
    }
    return "";
  }));
}

TEST(Parking, AWaitInsideTheOwnScopeEndsAfterTheTimeOutAndSaysWhyAndTheCallRunsAfterIt) {
  Config config = cpu_config();
  config.timeout_s = 0.3;
  Communicator comm(unique_id_create(), 0, 1, config);
  const Watchdog watchdog("a wait inside a scope");
  std::int64_t value = 1;
  Ticket ticket;
  {
    const ParkedScope scope(comm);
    ASSERT_EQ(scope.status(), Status::kOk);
    ticket = comm.all_reduce(&value, &value, 1, DType::kInt64);
    const Stopwatch watch;
    EXPECT_EQ(comm.wait(ticket), Status::kAgain);
    EXPECT_GE(watch.seconds(), 0.3);
    EXPECT_LT(watch.seconds(), 5 * patience());
    const std::string text = comm.last_error();
    for (const char* part : {"this rank itself keeps its worker parked", "leave the ParkedScope"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(comm.wait(ticket), Status::kOk) << comm.last_error();
  EXPECT_EQ(value, 1);
}

TEST(Parking, AScopeOpensWhileAnotherThreadKeepsSubmitting) {
  Communicator comm(unique_id_create(), 0, 1, resident_config());
  const Watchdog watchdog("scope beside a submitter", 30);
  std::atomic<bool> stop{false};
  std::thread submitter([&] {
    while (!stop) {
      const Ticket ticket = comm.nop();
      if (ticket.status == Status::kOk) (void)comm.wait(ticket, 0.001);
    }
  });
  for (int round = 0; round < 20; ++round) {
    const ParkedScope scope(comm);
    EXPECT_EQ(scope.status(), Status::kOk);
    const std::uint64_t launches = comm.stats().launches;
    sleep_s(0.002);
    EXPECT_EQ(comm.stats().launches, launches);
  }
  stop = true;
  submitter.join();
}

TEST(Parking, TheLastCallOfABurstMakesTheWorkerLeave) {
  expect_empty(run_ranks(2, resident_config(), [](Communicator& comm) -> std::string {
    CallOptions last;
    last.last_of_burst = true;
    for (std::uint64_t burst = 1; burst <= 10; ++burst) {
      for (int call = 0; call < 3; ++call) {
        if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      }
      if (std::string text = sum_of_ones(comm, last); !text.empty()) return text;
      if (!eventually([&] { return comm.stats().parks.burst_end == burst; })) return "no park after the burst";
      if (comm.stats().launches != burst) return "not one launch a burst";
    }
    return "";
  }));
}

TEST(Parking, HintsOfOneRankDoNotDisturbTheOthers) {
  expect_empty(run_ranks(3, resident_config(), [](Communicator& comm) -> std::string {
    CallOptions options;
    options.last_of_burst = comm.rank() == 1;
    for (int call = 0; call < 200; ++call) {
      if (std::string text = sum_of_ones(comm, options); !text.empty()) return text;
    }
    const Stats stats = comm.stats();
    return comm.rank() == 1 || stats.launches == 1 ? "" : std::to_string(stats.launches) + " launches";
  }));
}

TEST(Parking, LaunchesAreAtMostOneMoreThanParksWhateverHappens) {
  Config config = cpu_config();
  config.idle_park_us = 20;
  config.lease_us = 300;
  const auto stats = run_ranks(4, config, [](Communicator& comm) {
    std::uint64_t random = static_cast<std::uint64_t>(comm.rank()) + 99;
    for (int call = 0; call < 1500; ++call) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      CallOptions options;
      options.protocol = kProtocols[call % 3];
      options.last_of_burst = (random >> 40) % 50 == 0;
      EXPECT_EQ(sum_of_ones(comm, options), "");
      if ((random >> 45) % 100 == 0) sleep_s(0.0005);
      if ((random >> 50) % 100 == 0) {
        EXPECT_EQ(comm.park(), Status::kOk);
      }
    }
    EXPECT_EQ(comm.park(), Status::kOk);
    return comm.stats();
  });
  for (const Stats& s : stats) {
    EXPECT_EQ(s.calls, 1500u);
    EXPECT_EQ(s.launches, all_parks(s.parks)) << "all parked: one park a launch";
  }
}

}  // namespace
}  // namespace ringbell::test
