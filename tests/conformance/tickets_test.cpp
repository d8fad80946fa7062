// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What tickets answer: pending, done, stale, refused; deadlines of a wait; many calls at once.
#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

Config with_depth(std::uint32_t depth) {
  Config config = cpu_config();
  config.queue_depth = depth;
  return config;
}

void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}

TEST(Tickets, AreStaleAfterAsManyNewerCallsAsTheQueueIsDeepAndNeverWrong) {
  Communicator comm(unique_id_create(), 0, 1, with_depth(4));
  std::array<Ticket, 9> tickets;
  for (Ticket& ticket : tickets) {
    ticket = comm.nop();
    ASSERT_EQ(comm.wait(ticket), Status::kOk);
  }
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(comm.test(tickets[i]), Status::kStale) << i;
    EXPECT_EQ(comm.wait(tickets[i]), Status::kStale) << i;
  }
  for (std::size_t i = 5; i < 9; ++i) EXPECT_EQ(comm.test(tickets[i]), Status::kOk) << i;
}

TEST(Tickets, TestIsPendingAndAWaitWithADeadlineIsAgainUntilThePeerComes) {
  SharedWords waited(1);
  expect_empty(run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    double value = 1;
    if (comm.rank() == 1 && !waited.await(0, 1)) return "rank 0 did not wait";
    const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kFloat64);
    if (comm.rank() == 0) {
      if (comm.test(ticket) != Status::kPending) return "not pending";
      if (comm.wait(ticket, 0) != Status::kAgain) return "a deadline of 0 only looks";
      const Stopwatch watch;
      if (comm.wait(ticket, 0.05) != Status::kAgain) return "no kAgain at the deadline";
      if (watch.seconds() < 0.05 || watch.seconds() > 1 * patience())
        return "deadline of 50 ms took " + std::to_string(watch.seconds());
      if (comm.wait_all(std::span(&ticket, 1), 0.01) != Status::kAgain) return "wait_all has no deadline";
      waited[0] = 1;
    }
    if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
    if (comm.test(ticket) != Status::kOk) return "done, but test says otherwise";
    return value == 2 ? "" : "wrong";
  }));
}

TEST(Tickets, ThatWereNeverIssuedAreRefused) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  EXPECT_EQ(comm.wait(Ticket{}), Status::kAborted) << "a default ticket names no call";
  EXPECT_EQ(comm.test(Ticket{}), Status::kAborted);
  EXPECT_EQ(comm.test(Ticket{0, Status::kOk}), Status::kInvalidArgument) << "nothing was submitted yet";
  EXPECT_EQ(comm.wait(Ticket{7, Status::kOk}), Status::kInvalidArgument);
  ASSERT_EQ(comm.wait(comm.nop()), Status::kOk);
  EXPECT_EQ(comm.wait(Ticket{1, Status::kOk}), Status::kInvalidArgument);
  EXPECT_EQ(comm.wait(Ticket{~0ull, Status::kOk}), Status::kInvalidArgument);
}

TEST(Tickets, ThatNameNoKeptCallLeaveATextThatSaysSo) {
  Communicator comm(unique_id_create(), 0, 1, with_depth(4));
  const auto expect_text = [&](const Ticket& ticket, Status status, const char* part) {
    EXPECT_EQ(comm.wait(ticket), status);
    EXPECT_NE(comm.last_error().find(part), std::string::npos) << comm.last_error();
  };
  expect_text(Ticket{}, Status::kAborted, "the ticket names no call");
  expect_text(Ticket{7, Status::kOk}, Status::kInvalidArgument, "the ticket names call 7, which this communicator has");
  const Ticket oldest = comm.nop();
  for (int call = 0; call < 4; ++call) ASSERT_EQ(comm.wait(comm.nop()), Status::kOk);
  expect_text(oldest, Status::kStale, "the ticket of call 0 is stale");
  const Ticket refused = comm.all_reduce(nullptr, nullptr, 1, DType::kFloat32);
  expect_text(refused, Status::kInvalidArgument, "in is null");
}

TEST(Tickets, OfARefusedCallAnswerWhyAndNothingIsQueued) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  float value = 1;
  const Ticket refused = comm.all_reduce(nullptr, &value, 1, DType::kFloat32);
  EXPECT_EQ(refused.status, Status::kInvalidArgument);
  EXPECT_EQ(comm.wait(refused), Status::kInvalidArgument);
  EXPECT_EQ(comm.test(refused), Status::kInvalidArgument);
  EXPECT_EQ(comm.nop().seq, 0u);
}

TEST(Tickets, WaitAllAnswersTheFirstThatIsNotOk) {
  Communicator comm(unique_id_create(), 0, 1, with_depth(4));
  float value = 1;
  std::array<Ticket, 3> tickets{comm.nop(), comm.nop(), comm.nop()};
  EXPECT_EQ(comm.wait_all(tickets), Status::kOk);
  EXPECT_EQ(comm.wait_all({}), Status::kOk);
  tickets[1] = comm.all_reduce(nullptr, &value, 1, DType::kFloat32);
  EXPECT_EQ(comm.wait_all(tickets), Status::kInvalidArgument);
}

TEST(AllReduceMany, QueuesAllInOrderAsOneChain) {
  expect_empty(run_ranks(3, cpu_config(), [](Communicator& comm) -> std::string {
    // Each call reads what the one before wrote: 1 -> 3 -> 9 -> 27.
    std::array<std::int64_t, 4> chain{1, 0, 0, 0};
    std::array<Ticket, 3> tickets;
    const std::array<AllReduceCall, 3> calls{{{&chain[0], &chain[1], 1, DType::kInt64},
                                              {&chain[1], &chain[2], 1, DType::kInt64},
                                              {&chain[2], &chain[3], 1, DType::kInt64}}};
    if (const Status status = comm.all_reduce_many(calls, tickets); status != Status::kOk) return status_name(status);
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (tickets[i].seq != i) return "not in order";
    }
    if (comm.wait_all(tickets) != Status::kOk) return comm.last_error();
    return chain == std::array<std::int64_t, 4>{1, 3, 9, 27} ? "" : "wrong chain";
  }));
}

TEST(AllReduceMany, QueuesNothingWhenOneCallIsBadAndNamesIt) {
  Communicator comm(unique_id_create(), 0, 1, with_depth(4));
  float a = 1;
  float b = 0;
  std::array<Ticket, 8> tickets;
  std::array<AllReduceCall, 3> calls;
  calls.fill({&a, &b, 1, DType::kFloat32});
  calls[1].count = 5;
  calls[1].out = nullptr;
  EXPECT_EQ(comm.all_reduce_many(calls, tickets), Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("call 1 of 3"), std::string::npos) << comm.last_error();
  EXPECT_NE(comm.last_error().find("out is null with count 5"), std::string::npos) << comm.last_error();
  EXPECT_EQ(tickets[0].status, Status::kAborted) << "a ticket was written";
  EXPECT_EQ(comm.nop().seq, 0u) << "something was queued";
  EXPECT_EQ(comm.all_reduce_many({}, {}), Status::kOk);
}

TEST(AllReduceMany, QueuesNothingWhenThereIsNoRoomForAll) {
  Communicator comm(unique_id_create(), 0, 1, with_depth(4));
  float a = 1;
  float b = 0;
  std::array<Ticket, 5> tickets;
  std::array<AllReduceCall, 5> calls;
  calls.fill({&a, &b, 1, DType::kFloat32});
  EXPECT_EQ(comm.all_reduce_many(calls, tickets), Status::kInvalidArgument) << "it can never fit";
  EXPECT_NE(comm.last_error().find("5 calls"), std::string::npos) << comm.last_error();
  EXPECT_EQ(comm.all_reduce_many(std::span(calls).first(4), std::span(tickets).first(3)), Status::kInvalidArgument);
  ASSERT_EQ(comm.park_and_stay(), Status::kOk);  // the queue stands still
  ASSERT_EQ(comm.all_reduce_many(std::span(calls).first(2), tickets), Status::kOk);
  EXPECT_EQ(comm.all_reduce_many(std::span(calls).first(3), std::span(tickets).subspan(2)), Status::kAgain);
  ASSERT_EQ(comm.all_reduce_many(std::span(calls).first(2), std::span(tickets).subspan(2)), Status::kOk);
  EXPECT_EQ(tickets[3].seq, 3u);
  EXPECT_EQ(comm.all_reduce(&a, &b, 1, DType::kFloat32).status, Status::kAgain);
  comm.unpark();
  EXPECT_EQ(comm.wait_all(std::span(tickets).first(4)), Status::kOk);
  EXPECT_EQ(b, 1.0f);
}

TEST(Tickets, MayBeWaitedForByAnyThread) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    for (int call = 0; call < 300; ++call) {
      float value = 1;
      const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kFloat32);
      Status other = Status::kPending;
      std::thread waiter([&] { other = comm.wait(ticket); });
      const Status mine = comm.wait(ticket);
      waiter.join();
      if (mine != Status::kOk || other != Status::kOk) return comm.last_error();
    }
    return "";
  }));
}

}  // namespace
}  // namespace ringbell::test
