// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-test: timeout=120
//
// Host-issued calls that come after a point in a stream: never early, never in the way of a park, never lost.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/support/buffers.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

/// Holds a stream up until it is opened.
class Gate {
 public:
  void close_in(HostStream& stream) {
    stream.launch([this] {
      std::unique_lock lock(mutex_);
      opened_.wait(lock, [this] { return is_open_; });
    });
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

CallOptions after(HostStream& stream) {
  CallOptions options;
  options.after = Stream{&stream};
  return options;
}
void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}
Config short_stays() {
  Config config = cpu_config();
  config.idle_park_us = 50;
  config.lease_us = 500;
  return config;
}

TEST(AfterStream, NoCallReadsItsInputBeforeTheStreamHasWrittenIt) {
  expect_empty(run_ranks(2, short_stays(), [](Communicator& comm) -> std::string {
    const int calls = is_sanitized() ? 200 : 2000;
    HostStream stream;
    std::vector<std::int64_t> in(64);
    std::vector<std::int64_t> out(64);
    std::uint64_t random = 99 + static_cast<std::uint64_t>(comm.rank());
    for (int call = 1; call <= calls; ++call) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      // One in 100 outlasts idle park and lease by far; the buffer is written at the producer's very end.
      const double delay_s = (random >> 33) % 100 == 0 ? 0.005 : static_cast<double>((random >> 40) % 200) * 1e-6;
      stream.launch([&in, call, delay_s, rank = comm.rank()] {
        in.assign(in.size(), -1'000'000);
        if (delay_s > 0) sleep_s(delay_s);
        in.assign(in.size(), std::int64_t{call} * (rank + 1));
      });
      const Ticket ticket =
          comm.all_reduce(in.data(), out.data(), in.size(), DType::kInt64, ReduceOp::kSum, after(stream));
      if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
      for (const std::int64_t value : out) {
        if (value != std::int64_t{call} * 3) return "call " + std::to_string(call) + " gave " + std::to_string(value);
      }
    }
    return "";
  }));
}

TEST(AfterStream, CallsBehindOneThatIsNotReadyKeepTheirOrder) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    for (int round = 0; round < 50; ++round) {
      HostStream stream;
      Gate gate;
      std::int64_t first = 0;
      std::int64_t second = 100;
      gate.close_in(stream);
      stream.launch([&first] { first = 7; });
      const Ticket early = comm.all_reduce(&first, &first, 1, DType::kInt64, ReduceOp::kSum, after(stream));
      const Ticket late = comm.all_reduce(&second, &second, 1, DType::kInt64);
      if (comm.wait(late, 0.002) != Status::kAgain) return "a call overtook one that was made before it";
      gate.open();
      if (std::string text = wait_ok(comm, late); !text.empty()) return text;
      if (comm.test(early) != Status::kOk) return "the first call is not complete";
      if (first != 14 || second != 200) return "wrong";
    }
    return "";
  }));
}

TEST(AfterStream, OneSubmitAndNoFurtherCallCompletes) {
  expect_empty(run_ranks(2, short_stays(), [](Communicator& comm) -> std::string {
    HostStream stream;
    std::atomic<std::int64_t> done{0};
    std::int64_t value = 0;
    stream.launch([&value] {
      sleep_s(0.02);
      value = 3;
    });
    (void)comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, after(stream));
    const Stopwatch watch;
    while (comm.stats().calls == 0) {
      if (watch.seconds() > 5 * patience()) return "not complete";
      sleep_s(0.001);
    }
    return value == 6 ? "" : "wrong";
  }));
}

TEST(AfterStream, ACallThatIsNotReadyHoldsUpNoParkAndNoIdlePark) {
  Communicator comm(unique_id_create(), 0, 1, short_stays());
  HostStream stream;
  Gate gate;
  gate.close_in(stream);
  std::int64_t value = 4;
  const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, after(stream));
  const Stopwatch watch;
  EXPECT_EQ(comm.park(5 * patience()), Status::kOk) << comm.last_error();
  EXPECT_LT(watch.seconds(), 2 * patience());
  // While it is not ready nothing is launched for it.
  const std::uint64_t launches = comm.stats().launches;
  sleep_s(0.05);
  EXPECT_EQ(comm.stats().launches, launches);
  {
    ParkedScope parked(comm);
    EXPECT_EQ(parked.status(), Status::kOk);
  }
  EXPECT_EQ(comm.wait(ticket, 0.01), Status::kAgain);
  gate.open();
  EXPECT_EQ(comm.wait(ticket), Status::kOk) << comm.last_error();
  EXPECT_EQ(value, 4);
}

TEST(AfterStream, AWorkerThatRunsAlreadyParksAlthoughThreeQuartersOfTheNextCommandAreThere) {
  Config config = cpu_config();
  config.idle_park_us = 2000;
  Communicator comm(unique_id_create(), 0, 1, config);
  HostStream stream;
  Gate gate;
  std::int64_t value = 4;
  ASSERT_EQ(comm.wait(comm.all_reduce(&value, &value, 1, DType::kInt64)), Status::kOk);
  gate.close_in(stream);
  const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, after(stream));
  const Stopwatch watch;
  while (comm.stats().parks.idle == 0 && watch.seconds() < 5 * patience()) sleep_s(0.001);
  EXPECT_GE(comm.stats().parks.idle, 1u);
  gate.open();
  EXPECT_EQ(comm.wait(ticket), Status::kOk);
}

TEST(AfterStream, ACommunicatorThatGoesWaitsForTheStreamThatWillStillStoreIntoIt) {
  HostStream stream;
  Gate gate;
  std::int64_t value = 1;
  std::thread opener;
  {
    Communicator comm(unique_id_create(), 0, 1, cpu_config());
    gate.close_in(stream);
    (void)comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, after(stream));
    opener = std::thread([&gate] {
      sleep_s(1.5);
      gate.open();
    });
  }
  opener.join();
  stream.synchronize();  // its store went to memory that was there
}

TEST(AfterStream, AnAbortEndsACallThatIsNotReady) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  HostStream stream;
  Gate gate;
  gate.close_in(stream);
  std::int64_t value = 1;
  const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, after(stream));
  comm.abort();
  EXPECT_EQ(comm.wait(ticket, 5 * patience()), Status::kAborted);
  gate.open();
  stream.synchronize();
}

TEST(AfterStream, ManyCallsWithTheirOwnStreamsAreQueuedAtOnce) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    HostStream streams[2];
    for (int round = 0; round < 100; ++round) {
      std::int64_t values[3] = {0, 0, 5};
      streams[0].launch([&values] { values[0] = 1; });
      streams[1].launch([&values] { values[1] = 2; });
      AllReduceCall calls[3];
      for (int i = 0; i < 3; ++i) calls[i] = {&values[i], &values[i], 1, DType::kInt64};
      calls[0].options.after = Stream{&streams[0]};
      calls[1].options.after = Stream{&streams[1]};
      Ticket tickets[3];
      if (comm.all_reduce_many(calls, tickets) != Status::kOk) return comm.last_error();
      if (comm.wait_all(tickets) != Status::kOk) return comm.last_error();
      if (values[0] != 2 || values[1] != 4 || values[2] != 10) return "wrong";
    }
    return "";
  }));
}

}  // namespace
}  // namespace ringbell::test
