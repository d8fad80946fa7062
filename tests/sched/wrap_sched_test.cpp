// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// Counters that start just below the places where something wraps: the LL flag (2^32 - 1), 2^31, 2^32, the slots. One
// start serves slot epochs, queue sequence and header index at once.
#include <gtest/gtest.h>

#include "device/layout/ll_line.hpp"
#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

WorldConfig mixed_calls(unsigned ranks, std::uint64_t start) {
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = 2;
  config.first_epoch = config.first_seq = config.first_op = start;
  for (std::uint64_t i = 0; i < 9; ++i) {
    config.calls.push_back({.count = 2 + i, .protocol = static_cast<Protocol>(1 + i % 3), .in_place = i % 4 == 3});
  }
  return config;
}

class WrapSched : public testing::TestWithParam<std::tuple<std::uint64_t, unsigned>> {};

TEST_P(WrapSched, CallsBeforeAndAfterTheWrapAreRight) {
  const auto [start, ranks] = GetParam();
  SchedWorld world(mixed_calls(ranks, start));
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

constexpr std::uint64_t kFlagPeriod = 0xffffffff;
INSTANTIATE_TEST_SUITE_P(Starts, WrapSched,
                         testing::Combine(testing::Values(1u, (1ull << 31) - 2, kFlagPeriod - 4, kFlagPeriod - 3,
                                                          kFlagPeriod - 2, kFlagPeriod - 1, kFlagPeriod,
                                                          (1ull << 32) - 1, (1ull << 32) + 1, 2 * kFlagPeriod - 3),
                                          testing::Values(2u, 3u)));

// A line that a short message did not touch holds the flag of one period ago: it must have been zeroed, and the zero
// must be visible before the credit. Shown by taking each away.
TEST(LlClean, SlotIsZeroedBeforeItsCredit) {
  WorldConfig config = mixed_calls(3, kFlagPeriod - 3);
  for (Call& call : config.calls) call.protocol = Protocol::kLL;
  SchedWorld world(config);
  const Outcome good = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(good.failed) << good.report;
  const Outcome bad = world.explore(1, 5000, {device::Edge::kCredit, Side::kRelease});
  EXPECT_TRUE(bad.failed) << "a credit that overtakes the zeroes went unseen in " << bad.seeds << " seeds";
}

TEST(LlClean, EverySlotIsCleanAfterTheWrap) {
  WorldConfig config = mixed_calls(2, kFlagPeriod - 6);
  for (Call& call : config.calls) call.protocol = Protocol::kLL;
  SchedWorld world(config);
  world.check_after([](SchedWorld& after) -> std::string {
    const device::WorkerContext& ctx = after.rank(0).ctx;
    for (unsigned slot = 0; slot < ctx.layout.slots; ++slot) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(ctx.window[0] + ctx.layout.ll_slot(0, slot));
      for (std::uint64_t i = 0; i < ctx.layout.ll_slot_bytes() / 8; ++i) {
        if (words[i] >> 32 > 100)
          return "rank 0, LL slot " + std::to_string(slot) + ", word " + std::to_string(i) +
                 " still has a flag from before the wrap";
      }
    }
    return {};
  });
  const Outcome outcome = world.explore(first_seed(), seed_count(100));
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

}  // namespace
}  // namespace ringbell::test
