// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-test: timeout=180
// ringbell-test: name=million label=ci timeout=900 env=RINGBELL_TEST_CALLS=1000000 args=--gtest_filter=*C06*:*C09*
// ringbell-test: name=ten_million label=long timeout=7200 env=RINGBELL_TEST_CALLS=10000000 args=--gtest_filter=*C09*
//
// Public fault reports about order and capacity: zero counts, full queues, reuse of buffers, two submitters.
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

std::uint64_t calls_wanted(std::uint64_t quick) {
  const char* text = std::getenv("RINGBELL_TEST_CALLS");
  const std::uint64_t calls = text != nullptr ? std::strtoull(text, nullptr, 10) : quick;
  return is_sanitized() ? calls / 20 : calls;
}

void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}

// The value that every rank can tell of rank `rank` in call `call`.
std::uint64_t value_of(std::uint64_t call, int rank) {
  std::uint64_t x = call * 8 + static_cast<std::uint64_t>(rank) + 1;
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}
std::uint64_t sum_of(std::uint64_t call, int world) {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value_of(call, rank);
  return sum;
}

// ---- C05 ------------------------------------------------------------------------------------------------------------

TEST(CaseC05, ZeroCountsWithNullPointersAlternateWithDataForTenThousandCalls) {
  const std::uint64_t calls = calls_wanted(10000);
  expect_empty(run_ranks(4, cpu_config(), [&](Communicator& comm) -> std::string {
    std::uint64_t in[5];
    std::uint64_t out[5];
    for (std::uint64_t call = 0; call < calls; ++call) {
      CallOptions options;
      options.protocol = kProtocols[call / 2 % 3];
      if (call % 2 == 0) {
        const Ticket ticket = comm.all_reduce(nullptr, nullptr, 0, DType::kFloat32, ReduceOp::kSum, options);
        if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
        continue;
      }
      for (std::uint64_t i = 0; i < 5; ++i) {
        in[i] = value_of(call * 5 + i, comm.rank());
        out[i] = 0;
      }
      const Ticket ticket = comm.all_reduce(in, out, 5, DType::kUInt64, ReduceOp::kSum, options);
      if (ticket.seq != call) return "the order slipped";
      if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
      for (std::uint64_t i = 0; i < 5; ++i) {
        if (out[i] != sum_of(call * 5 + i, comm.world())) return "wrong in call " + std::to_string(call);
      }
    }
    return comm.stats().calls == calls ? "" : "not all calls are counted";
  }));
}

TEST(CaseC05, ZeroCountTouchesNoPointer) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    auto* nowhere = reinterpret_cast<float*>(std::uintptr_t{16});
    for (Protocol protocol : kProtocols) {
      CallOptions options;
      options.protocol = protocol;
      const Ticket ticket = comm.all_reduce(nowhere, nowhere + 1, 0, DType::kFloat32, ReduceOp::kAvg, options);
      if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
    }
    return "";
  }));
}

// ---- C06 ------------------------------------------------------------------------------------------------------------

TEST(CaseC06, MessagesAroundTheCapacityOfSlotChunkAndConnectionAreRight) {
  for (int world : {2, 3}) {
    std::vector<AllReduceCase> cases;
    Config config = cpu_config();
    config.slot_bytes = 3840;
    const auto ranks = static_cast<std::uint64_t>(world);
    for (Protocol protocol : kProtocols) {
      // One slot, one round (a slot a rank), all slots of a connection.
      for (std::uint64_t capacity : {std::uint64_t{3840}, 3840 * ranks, std::uint64_t{3840 * 8}}) {
        for (std::uint64_t bytes : {capacity - 1, capacity, capacity + 1, 10 * capacity}) {
          cases.push_back({bytes, DType::kUInt8, ReduceOp::kMax, protocol});
          cases.push_back({bytes, DType::kInt8, ReduceOp::kSum, protocol, 1, 1, Placement::kMixed});
        }
      }
    }
    EXPECT_EQ(suite_failure(cases, run_on_threads(world, config, cases, 6)), "") << world;
  }
}

// Rank 1 sleeps while rank 0 fills its queue; every entry is checked, so none is lost, doubled or out of order.
TEST(CaseC06, AsynchronousCallsWithoutWaitingWhileAPeerSleepsAreNeitherLostNorReordered) {
  const std::uint64_t calls = calls_wanted(20000);
  Config config = cpu_config();
  config.queue_depth = 16;
  expect_empty(run_ranks(
      2, config,
      [&](Communicator& comm) -> std::string {
        constexpr std::uint64_t kDepth = 16;
        std::uint64_t in[kDepth] = {};
        std::uint64_t out[kDepth] = {};
        Ticket tickets[kDepth];
        if (comm.rank() == 1) sleep_s(std::getenv("RINGBELL_TEST_CALLS") != nullptr ? 5 : 0.3);
        const auto reap = [&](std::uint64_t call) -> std::string {
          if (std::string text = wait_ok(comm, tickets[call % kDepth]); !text.empty()) return text;
          return out[call % kDepth] == sum_of(call, 2) ? "" : "wrong in call " + std::to_string(call);
        };
        std::uint64_t reaped = 0;
        for (std::uint64_t call = 0; call < calls;) {
          if (call - reaped == kDepth) {  // buffers are used again only after their call
            if (std::string text = reap(reaped); !text.empty()) return text;
            ++reaped;
          }
          in[call % kDepth] = value_of(call, comm.rank());
          const Ticket ticket = comm.all_reduce(&in[call % kDepth], &out[call % kDepth], 1, DType::kUInt64);
          if (ticket.status != Status::kOk) return status_name(ticket.status);
          if (ticket.seq != call) return "not the next place in the order";
          tickets[call++ % kDepth] = ticket;
        }
        for (; reaped < calls; ++reaped) {
          if (std::string text = reap(reaped); !text.empty()) return text;
        }
        return "";
      },
      600));
}

TEST(CaseC06, AFullQueueAnswersAgainAndGoesOnWhenThePeerComes) {
  Config config = cpu_config();
  config.queue_depth = 4;
  SharedWords full(1);
  expect_empty(run_ranks(2, config, [&](Communicator& comm) -> std::string {
    std::uint64_t in[8];
    std::uint64_t out[8] = {};
    Ticket tickets[8];
    for (std::uint64_t i = 0; i < 8; ++i) in[i] = value_of(i, comm.rank());
    if (comm.rank() == 1 && !full.await(0, 1)) return "rank 0 never found the queue full";
    std::uint64_t again = 0;
    for (std::uint64_t i = 0; i < 8; ++i) {
      for (;;) {
        tickets[i] = comm.all_reduce(&in[i], &out[i], 1, DType::kUInt64);
        if (tickets[i].status != Status::kAgain) break;
        ++again;
        full[0] = 1;
        if (i < 4 && comm.rank() == 0) return "full before its depth";
        std::this_thread::yield();
      }
      if (tickets[i].status != Status::kOk) return status_name(tickets[i].status);
    }
    if (std::string text = wait_ok(comm, tickets[7]); !text.empty()) return text;
    for (std::uint64_t i = 0; i < 8; ++i) {
      if (out[i] != sum_of(i, 2)) return "wrong in call " + std::to_string(i);
    }
    return comm.rank() == 1 || again != 0 ? "" : "never full";
  }));
}

TEST(CaseC06, TheSmallestQueueGoesManyTimesAround) {
  Config config = cpu_config();
  config.queue_depth = 2;
  expect_empty(run_ranks(3, config, [](Communicator& comm) -> std::string {
    for (std::uint64_t call = 0; call < 1000; ++call) {
      std::uint64_t value = value_of(call, comm.rank());
      const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kUInt64);
      if (ticket.seq != call) return "the order slipped";
      if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
      if (value != sum_of(call, 3)) return "wrong in call " + std::to_string(call);
    }
    return "";
  }));
}

// ---- C08 ------------------------------------------------------------------------------------------------------------

TEST(CaseC08, ABufferOverwrittenTheMomentItsCallCompletesIsReadByNobody) {
  const std::uint64_t calls = calls_wanted(10000);
  for (int world : {2, 3, 4}) {
    expect_empty(run_ranks(world, cpu_config(), [&](Communicator& comm) -> std::string {
      constexpr std::uint64_t kCount = 33;
      std::vector<double> in(kCount);
      std::vector<double> out(kCount);
      std::uint64_t random = static_cast<std::uint64_t>(comm.rank()) + 1;
      for (std::uint64_t call = 0; call < calls / static_cast<std::uint64_t>(world); ++call) {
        for (std::uint64_t i = 0; i < kCount; ++i) {
          in[i] = static_cast<double>((call * 7 + i) % 1000) + comm.rank();
          out[i] = -1;
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        if ((random >> 40) % 200 == 0) sleep_s(static_cast<double>((random >> 33) % 5) * 1e-3);
        CallOptions options;
        options.protocol = kProtocols[call % 3];
        const Ticket ticket = comm.all_reduce(in.data(), out.data(), kCount, DType::kFloat64, ReduceOp::kSum, options);
        const Status status = comm.wait(ticket);
        std::fill(in.begin(), in.end(), std::numeric_limits<double>::quiet_NaN());
        if (status != Status::kOk) return comm.last_error();
        for (std::uint64_t i = 0; i < kCount; ++i) {
          const double expected = static_cast<double>((call * 7 + i) % 1000) * comm.world() +
                                  static_cast<double>(comm.world() * (comm.world() - 1)) / 2;
          if (out[i] != expected) return "wrong in call " + std::to_string(call);
        }
      }
      return "";
    }));
  }
}

// ---- C09 ------------------------------------------------------------------------------------------------------------

// Under ThreadSanitizer this is also the proof that no shared byte is touched without an order.
TEST(CaseC09, OneElementCallsAreNeverStale) {
  const std::uint64_t calls = calls_wanted(20000);
  expect_empty(run_ranks(
      2, cpu_config(),
      [&](Communicator& comm) -> std::string {
        for (std::uint64_t call = 0; call < calls; ++call) {
          std::uint64_t in = value_of(call, comm.rank());
          std::uint64_t out = 0;
          CallOptions options;
          options.protocol = kProtocols[call % 3];
          if (std::string text = wait_ok(comm, comm.all_reduce(&in, &out, 1, DType::kUInt64, ReduceOp::kSum, options));
              !text.empty()) {
            return text;
          }
          if (out != sum_of(call, 2)) return "stale in call " + std::to_string(call);
        }
        return "";
      },
      7000));
}

// ---- C14 ------------------------------------------------------------------------------------------------------------

TEST(CaseC14, TwoThreadsOfAWorldOfOneSubmitAtOnceAndEachGetsItsOwn) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  const std::uint64_t calls = calls_wanted(10000);
  expect_empty(run_threads(2, [&](int thread) -> std::string {
    for (std::uint64_t call = 0; call < calls; ++call) {
      std::uint64_t in = value_of(call, thread);
      std::uint64_t out = 0;
      Ticket ticket;
      do ticket = comm.all_reduce(&in, &out, 1, DType::kUInt64);
      while (ticket.status == Status::kAgain);
      // Complete and long ago is as good: the other thread may have made a queue full of calls meanwhile.
      const Status status = comm.wait(ticket);
      if (status != Status::kOk && status != Status::kStale) return status_name(status);
      if (out != in) return "mixed data in call " + std::to_string(call);
    }
    return "";
  }));
  EXPECT_EQ(comm.stats().calls, 2 * calls);
}

// Two threads a rank, turns taken by a lock: the order is the same on both ranks, tags prove it.
TEST(CaseC14, TwoThreadsARankInOneOrderAreRight) {
  const std::uint64_t calls = calls_wanted(5000);
  expect_empty(run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    std::mutex mutex;
    std::condition_variable turn_changed;
    std::uint64_t turn = 0;
    std::string texts[2];
    const auto submitter = [&](std::uint64_t thread) {
      for (std::uint64_t call = thread; call < 2 * calls; call += 2) {
        std::uint64_t in = value_of(call, comm.rank());
        std::uint64_t out = 0;
        Ticket ticket;
        {
          std::unique_lock lock(mutex);
          turn_changed.wait(lock, [&] { return turn == call; });
          CallOptions options;
          options.tag = call;
          ticket = comm.all_reduce(&in, &out, 1, DType::kUInt64, ReduceOp::kSum, options);
          ++turn;
          turn_changed.notify_all();
        }
        std::string text = wait_ok(comm, ticket);  // outside the lock: the other thread submits meanwhile
        if (text.empty() && out != sum_of(call, 2)) text = "mixed data in call " + std::to_string(call);
        if (!text.empty()) {
          texts[thread] = text;
          return;
        }
      }
    };
    std::thread other(submitter, 1);
    submitter(0);
    other.join();
    return texts[0] + texts[1];
  }));
}

TEST(CaseC14, RanksThatInterleaveDifferentlyFindOutByTheirTags) {
  const auto statuses = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::vector<Status> seen;
    std::uint64_t values[2] = {1, 2};
    Ticket tickets[2];
    for (std::uint64_t i = 0; i < 2; ++i) {
      CallOptions options;
      options.tag = comm.rank() == 0 ? i : 1 - i;  // rank 1 submits them in the other order
      tickets[i] = comm.all_reduce(&values[i], &values[i], 1, DType::kUInt64, ReduceOp::kSum, options);
    }
    for (const Ticket& ticket : tickets) seen.push_back(comm.wait(ticket));
    EXPECT_NE(comm.last_error().find("tag"), std::string::npos) << comm.last_error();
    return seen;
  });
  for (const auto& seen : statuses) {
    EXPECT_EQ(seen[0], Status::kMismatch) << status_name(seen[0]);
    EXPECT_NE(seen[1], Status::kOk);
  }
}

}  // namespace
}  // namespace ringbell::test
