// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a planted fault does to a run: a flipped bit is seen by the comparison, a lost line ends in a time-out that is
// on record, delayed and torn publishes change nothing.
#include <gtest/gtest.h>

#include "tests/support/thread_world.hpp"

namespace ringbell::test {
namespace {

using device::FaultKind;
using device::FaultPlan;
using device::WaitRecord;

struct Result {
  std::vector<Status> statuses;
  unsigned wrong = 0;  // elements, over ranks and calls
  std::vector<WaitRecord> failures;
  std::uint64_t published = 0;
};

/// Calls of `count` uint64 between two ranks; rank 1 has the plan. Stops at the first that fails.
Result run_calls(Protocol protocol, FaultPlan plan, std::uint64_t count, int calls, std::uint64_t timeout_ns) {
  Result result;
  {
    ThreadWorld<device::CpuFaultOps> world(2, 0, timeout_ns, 1, &plan);
    std::vector<std::uint64_t> in[2], out[2];
    for (int call = 0; call < calls; ++call) {
      std::vector<device::Command> commands;
      for (unsigned r = 0; r < 2; ++r) {
        in[r].assign(count, 0);
        out[r].assign(count, ~0ull);
        for (std::uint64_t i = 0; i < count; ++i) in[r][i] = (i + 1) * (r + 3) + static_cast<std::uint64_t>(call);
        commands.push_back({in[r].data(), out[r].data(), count, 0, 1920, device::CommandKind::kAllReduce, 0,
                            DType::kUInt64, ReduceOp::kSum, Algorithm::kRing, protocol, 1});
      }
      result.statuses = world.call(commands);
      if (result.statuses[0] != Status::kOk || result.statuses[1] != Status::kOk) break;
      for (unsigned r = 0; r < 2; ++r) {
        for (std::uint64_t i = 0; i < count; ++i) result.wrong += out[r][i] != in[0][i] + in[1][i] ? 1 : 0;
      }
    }
    for (unsigned r = 0; r < 2; ++r) result.failures.push_back(world.control(r).way[device::kHostWay].failure);
  }
  result.published = plan.published;
  return result;
}

constexpr std::uint64_t kLong = 20'000'000'000;
const std::vector<Status> kBothOk = {Status::kOk, Status::kOk};

class FaultDecorator : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Protocols, FaultDecorator,
                         testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple));

TEST_P(FaultDecorator, NoPlanChangesNothing) {
  const Result result = run_calls(GetParam(), {}, 300, 20, kLong);
  EXPECT_EQ(result.statuses, kBothOk);
  EXPECT_EQ(result.wrong, 0u);
  EXPECT_GT(result.published, 0u);
}

TEST_P(FaultDecorator, FlipIsSeenByTheComparison) {
  for (const std::uint64_t publish : {1u, 17u, 100u}) {
    const Result result = run_calls(GetParam(), {FaultKind::kFlip, publish, 0, 0}, 300, 5, kLong);
    EXPECT_EQ(result.statuses, kBothOk) << "a flip is no error of the protocol";
    EXPECT_GE(result.published, publish);
    EXPECT_GE(result.wrong, 1u) << "publish " << publish;
    EXPECT_LE(result.wrong, 2u) << "one bit reaches one element of each rank at most";
  }
}

TEST_P(FaultDecorator, DelayAndTearChangeNothing) {
  for (const FaultKind kind : {FaultKind::kDelay, FaultKind::kTear}) {
    const Result every = run_calls(GetParam(), {kind, 0, 2'000, 0}, 40, 10, kLong);
    EXPECT_EQ(every.statuses, kBothOk);
    EXPECT_EQ(every.wrong, 0u);
    const Result one = run_calls(GetParam(), {kind, 5, 20'000'000, 0}, 40, 3, kLong);
    EXPECT_EQ(one.statuses, kBothOk);
    EXPECT_EQ(one.wrong, 0u);
  }
}

// A lost LL line, or the flag of an LL128 line, is awaited in vain. (A lost data quad of Simple is wrong data.)
TEST(FaultDrop, LostLineEndsInATimeoutOnRecord) {
  for (const auto& [protocol, publish] : {std::pair{Protocol::kLL, 9ull}, {Protocol::kLL128, 8ull}}) {
    const Result result = run_calls(protocol, {FaultKind::kDrop, publish, 0, 0}, 300, 3, 200'000'000);
    EXPECT_EQ(result.statuses, (std::vector<Status>{Status::kTimeout, Status::kTimeout}));
    EXPECT_EQ(result.failures[0].status, Status::kTimeout);
    EXPECT_EQ(result.failures[1].status, Status::kTimeout);
    // Both time out within moments; what rank 0 waits for is the line, if it is the one that reports.
    if (result.failures[0].reporter == 0) {
      EXPECT_EQ(result.failures[0].what, device::WaitFor::kLine);
      EXPECT_EQ(result.failures[0].peer, 1);
    }
    EXPECT_EQ(result.failures[0].valid, result.failures[0].seq + 1);
  }
}

TEST(FaultDrop, LostSimpleQuadIsSeenByTheComparison) {
  const Result result = run_calls(Protocol::kSimple, {FaultKind::kDrop, 9, 0, 0}, 300, 1, kLong);
  EXPECT_EQ(result.statuses, kBothOk);
  EXPECT_GE(result.wrong, 1u);
}

}  // namespace
}  // namespace ringbell::test
