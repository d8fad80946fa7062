// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// An abort that meets a worker which is just leaving: it has looked at the abort word for the last time, or a scope
// keeps it away. The peers must learn of it all the same, long before their own time-out.
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "host/clock.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

enum class Way : std::uint8_t {
  kIdle,       // one call, then nothing: the worker is idle for its time and leaves
  kLease,      // calls, each of which may be the lease's last
  kBurst,      // calls, each of which ends a burst
  kScope,      // scopes open and close
  kOpenScope,  // a scope is open, with a call queued in it, until the other rank knows
};

struct Round {
  UniqueId id;
  Way way = Way::kIdle;
  Config config;
  std::uint64_t abort_after_ns = 0;
};

std::vector<Round> draw_rounds(std::initializer_list<Way> ways, int count) {
  std::mt19937 random(7);
  std::vector<Round> rounds(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    Round& round = rounds[i];
    round.id = unique_id_create();
    round.way = ways.begin()[i % ways.size()];
    round.config = cpu_config();
    round.config.timeout_s = 60;
    round.config.slot_bytes = 1920;  // a round is mostly set-up: little to zero
    round.config.idle_park_us = round.way == Way::kIdle ? static_cast<int>(random() % 51) : 1'000'000;
    round.config.lease_us = round.way == Way::kLease ? 1 : 1'000'000;
    round.abort_after_ns = random() % (round.way == Way::kIdle ? 60'000 : 200'000);
  }
  return rounds;
}

void spin_ns(std::uint64_t ns) {
  const std::uint64_t start = host::monotonic_ns();
  while (host::monotonic_ns() - start < ns) {
  }
}

/// Where the ranks of all rounds meet.
struct Meeting {
  std::atomic<std::size_t> answered{0};  // rounds in which rank 1 has its answer
  std::atomic<int> failures{0};
};

Ticket one(Communicator& comm, std::int64_t* value, bool last = false) {
  CallOptions options;
  options.last_of_burst = last;
  return comm.all_reduce(value, value, 1, DType::kInt64, ReduceOp::kSum, options);
}

/// Rank 0's calls and parks, until the abort ends them.
void keep_parking(Communicator& comm, Way way, const std::atomic<bool>& aborted) {
  std::int64_t value = 1;
  Status status = comm.wait(one(comm, &value));
  switch (way) {
    case Way::kIdle: break;
    case Way::kLease:
    case Way::kBurst:
      while (status == Status::kOk) status = comm.wait(one(comm, &value, way == Way::kBurst));
      break;
    case Way::kScope:
      while (!aborted) const ParkedScope scope(comm);
      break;
    case Way::kOpenScope: break;  // abort_in_scope
  }
}

void abort_in(Communicator& comm, const Round& round, std::size_t number, Meeting& meeting) {
  std::atomic<bool> aborted{false};
  const auto abort = [&] {
    spin_ns(round.abort_after_ns);
    comm.abort();
    aborted = true;
  };
  // A member until the other knows.
  const auto await_answer = [&] {
    while (meeting.answered <= number) std::this_thread::yield();
  };
  if (round.way == Way::kIdle) {
    keep_parking(comm, round.way, aborted);
    abort();
    return await_answer();
  }
  std::thread aborter(abort);
  keep_parking(comm, round.way, aborted);
  aborter.join();
  await_answer();
}

/// The abort comes while a scope is open, which stays open until the other knows.
void abort_in_scope(Communicator& comm, std::size_t number, Meeting& meeting) {
  std::int64_t value = 1;
  EXPECT_EQ(wait_ok(comm, one(comm, &value)), "");
  const ParkedScope scope(comm);
  EXPECT_EQ(scope.status(), Status::kOk);
  const Ticket ticket = one(comm, &value);
  comm.abort();
  EXPECT_EQ(comm.wait(ticket), Status::kAborted);
  while (meeting.answered <= number) std::this_thread::yield();
}

/// Rank 1: calls until one fails. @return what is wrong
std::string call_until_aborted(Communicator& comm) {
  for (;;) {
    std::int64_t value = 1;
    const Ticket ticket = one(comm, &value);
    const Status status = comm.wait(ticket, 1 * patience());
    if (status == Status::kOk) continue;
    return status == Status::kAborted ? "" : std::string(status_name(status)) + ": " + comm.last_error();
  }
}

void run_rounds(std::initializer_list<Way> ways, int count) {
  if (is_sanitized()) count /= 10;
  const std::vector<Round> rounds = draw_rounds(ways, count);
  Meeting meeting;
  run_threads(2, [&](int rank) {
    for (std::size_t number = 0; number < rounds.size() && meeting.failures < 3; ++number) {
      const Round& round = rounds[number];
      Communicator comm(round.id, rank, 2, round.config);
      if (rank == 0) {
        if (round.way == Way::kOpenScope) {
          abort_in_scope(comm, number, meeting);
        } else {
          abort_in(comm, round, number, meeting);
        }
        continue;
      }
      const std::string wrong = call_until_aborted(comm);
      EXPECT_EQ(wrong, "") << "round " << number << ", way " << static_cast<int>(round.way);
      if (!wrong.empty()) ++meeting.failures;
      ++meeting.answered;
    }
    return 0;
  });
}

constexpr std::initializer_list<Way> kParks = {Way::kIdle, Way::kLease, Way::kBurst};
constexpr std::initializer_list<Way> kScopes = {Way::kScope, Way::kOpenScope};

TEST(AbortParking, OfAWorkerThatIsJustLeavingReachesThePeers) { run_rounds(kParks, 1200); }

TEST(AbortParking, OfAWorkerThatAScopeKeepsAwayReachesThePeersInsideTheScope) { run_rounds(kScopes, 400); }

TEST(AbortParking, OfAWorkerThatMayNotStayReachesThePeers) {
  setenv("RINGBELL_RESIDENT", "0", 1);
  run_rounds(kParks, 600);
  unsetenv("RINGBELL_RESIDENT");
}

}  // namespace
}  // namespace ringbell::test
