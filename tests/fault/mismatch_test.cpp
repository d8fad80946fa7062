// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that disagree on a call: kMismatch on every rank, both sides named, nothing hangs, nothing is taken for
// success.
#include <functional>

#include <gtest/gtest.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

struct Call {
  std::uint64_t count = 100;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  CallOptions options = {};
};

struct Outcome {
  Status first = Status::kOk;
  Status later_wait = Status::kOk;
  Status later_submit = Status::kOk;
  double first_s = 0;
  double later_s = 0;
  std::string text;
};

// One good call, then `odd` on rank `odd_rank` and `usual` elsewhere, then one more.
std::vector<Outcome> disagree(int world, const Call& usual, const Call& odd, int odd_rank = 1) {
  return run_ranks(world, cpu_config(), [&](Communicator& comm) {
    std::vector<std::byte> buffer(1 << 20);
    const auto call = [&](const Call& c) {
      return comm.all_reduce(buffer.data(), buffer.data(), c.count, c.dtype, c.op, c.options);
    };
    EXPECT_EQ(wait_ok(comm, call(usual)), "");
    Outcome outcome;
    const Stopwatch first;
    outcome.first = comm.wait(call(comm.rank() == odd_rank ? odd : usual));
    outcome.first_s = first.seconds();
    outcome.text = comm.last_error();
    const Stopwatch later;
    const Ticket ticket = call(usual);
    outcome.later_submit = ticket.status;
    outcome.later_wait = comm.wait(ticket);
    outcome.later_s = later.seconds();
    return outcome;
  });
}

void expect_mismatch(const std::vector<Outcome>& outcomes, const std::vector<std::string>& parts) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& o = outcomes[rank];
    EXPECT_EQ(o.first, Status::kMismatch) << "rank " << rank << ": " << o.text;
    EXPECT_LT(o.first_s, 2 * patience()) << "found by comparing, not by the time-out";
    EXPECT_EQ(o.later_submit, Status::kMismatch) << "rank " << rank;
    EXPECT_EQ(o.later_wait, Status::kMismatch) << "rank " << rank;
    EXPECT_LT(o.later_s, 0.5 * patience());
    for (const std::string& part : parts)
      EXPECT_NE(o.text.find(part), std::string::npos) << "'" << part << "' in: " << o.text;
  }
}

Call of_count(std::uint64_t count) { return {.count = count}; }

TEST(CaseC10, OneHundredAgainstTwoHundredIsAnErrorNamingBothCountsAndRanksOnBoth) {
  expect_mismatch(disagree(2, of_count(100), of_count(200)),
                  {"rank 0 has count 100", "rank 1 has count 200", "call 1", "all ranks must make the same call"});
}

// The text may begin with either side: both sides stand in it.
void expect_counts(int world, std::uint64_t usual, std::uint64_t odd, int odd_rank) {
  SCOPED_TRACE(std::to_string(usual) + " against " + std::to_string(odd) + " on rank " + std::to_string(odd_rank));
  const auto outcomes = disagree(world, of_count(usual), of_count(odd), odd_rank);
  expect_mismatch(outcomes, {"count " + std::to_string(usual), "count " + std::to_string(odd),
                             "rank " + std::to_string(odd_rank) + " has"});
}

TEST(CaseC10, LargeCountsThatDifferByLittle) { expect_counts(2, 250000, 249998, 1); }
TEST(CaseC10, OneAgainstZeroAndZeroAgainstOne) {
  expect_counts(2, 1, 0, 1);
  expect_counts(2, 0, 1, 1);
  expect_counts(3, 0, 1, 2);
  expect_counts(3, 1, 0, 0);
}
TEST(CaseC10, TheTwoSidesOfTheProtocolSwitch) {
  expect_counts(2, 4096, 4097, 1);  // 16 KiB is the last LL message of the CPU's table
  expect_counts(2, 4097, 4096, 0);
}
TEST(CaseC10, InALargerWorldEveryRankNamesTheTwoThatDiffer) {
  for (int odd_rank : {0, 2, 4}) expect_counts(5, 1000, 999, odd_rank);
}

TEST(Mismatch, OfTypeOperationAndProtocolNamesBothSidesOnEveryRank) {
  for (int world : {2, 4}) {
    SCOPED_TRACE(world);
    expect_mismatch(disagree(world, {}, {.dtype = DType::kInt32}),
                    {"float32 sum", "int32 sum", "rank 1 has count 100 (int32"});
    expect_mismatch(disagree(world, {}, {.op = ReduceOp::kMax}), {"float32 sum", "float32 max"});
    Call simple;
    simple.options.protocol = Protocol::kSimple;
    expect_mismatch(disagree(world, {}, simple), {"LL", "Simple", "rank 1 has"});
  }
}

TEST(Mismatch, OfTagsIsFoundAndSaidToBeThat) {
  for (int world : {2, 3}) {
    Call one;
    one.options.tag = 1;
    Call large;
    large.options.tag = std::uint64_t{1} << 40;
    expect_mismatch(disagree(world, {}, one), {"tag", "rank 1"});
    expect_mismatch(disagree(world, {}, large), {"tag", "rank 1"});
  }
}

TEST(Mismatch, AFreshCommunicatorWorksAfterIt) {
  expect_mismatch(disagree(3, of_count(7), of_count(8)), {});
  const auto texts = run_ranks(3, cpu_config(), [](Communicator& comm) -> std::string {
    float value = 1;
    if (std::string text = wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kFloat32)); !text.empty())
      return text;
    return value == 3 ? "" : "wrong";
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(Mismatch, CallsBeforeItSucceededAndQueuedOnesAfterItDoNot) {
  const auto seen = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::vector<std::int64_t> values(5, 1);
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < 5; ++i) {
      const std::uint64_t count = i == 2 && comm.rank() == 1 ? 0 : 1;
      tickets.push_back(comm.all_reduce(&values[i], &values[i], count, DType::kInt64));
    }
    std::vector<Status> statuses;
    for (const Ticket& ticket : tickets) statuses.push_back(comm.wait(ticket));
    EXPECT_EQ(values[0], 2);
    EXPECT_EQ(values[1], 2);
    return statuses;
  });
  for (const auto& statuses : seen) {
    EXPECT_EQ(statuses[0], Status::kOk);
    EXPECT_EQ(statuses[1], Status::kOk);
    EXPECT_EQ(statuses[2], Status::kMismatch);
    EXPECT_NE(statuses[3], Status::kOk);
    EXPECT_NE(statuses[4], Status::kOk);
  }
}

// Only a later ticket is asked for: the text must tell the mismatch all the same.
TEST(Mismatch, IsToldEvenIfOnlyALaterCallIsWaitedFor) {
  const auto texts = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::int64_t values[2] = {1, 1};
    (void)comm.all_reduce(&values[0], &values[0], comm.rank() == 0 ? 1u : 0u, DType::kInt64);
    const Ticket later = comm.all_reduce(&values[1], &values[1], 1, DType::kInt64);
    const Status status = comm.wait(later);
    EXPECT_TRUE(status == Status::kAborted || status == Status::kMismatch) << status_name(status);
    return comm.last_error();
  });
  for (const std::string& text : texts)
    EXPECT_NE(text.find("all ranks must make the same call"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringbell::test
