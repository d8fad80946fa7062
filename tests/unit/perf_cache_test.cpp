// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// --l2: how many sets of buffers a row has, that the region holds them, and how the cache's size is read.
#include "tools/perf_cache.hpp"

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

TEST(PerfCache, WarmAndFlushHaveOneSet) {
  for (const L2State l2 : {L2State::kWarm, L2State::kFlush}) {
    EXPECT_EQ(set_plan(l2, 8, 25).calls, 1);
    EXPECT_EQ(set_plan(l2, 64 * kMebi, 25).calls, 1);
  }
}

TEST(PerfCache, ColdHasASetForEveryCallAsLongAsTheyFitAndNeverFewerThanTwo) {
  EXPECT_EQ(set_plan(L2State::kCold, 8, 25).calls, 25);
  EXPECT_EQ(set_plan(L2State::kCold, 8, 1).calls, 2) << "a set that the call before used would be warm";
  EXPECT_EQ(set_plan(L2State::kCold, 16 * kMebi, 25).calls, 7);
  EXPECT_EQ(set_plan(L2State::kCold, 1024 * kMebi, 25).calls, 2);
}

TEST(PerfCache, SetsDoNotOverlapAndTheRegionHoldsThemAndTheSpareOne) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{5000}, 3 * kMebi}) {
    PerfOptions options;
    options.l2 = L2State::kCold;
    options.sizes = {8, bytes};
    const SetPlan plan = set_plan(options.l2, bytes, options.warmup + options.iterations);
    EXPECT_GE(plan.stride, bytes);
    EXPECT_GE(region_bytes(options), plan.stride * static_cast<std::uint64_t>(plan.calls) + bytes);
  }
}

TEST(PerfCache, AWarmRegionIsTheLargestSize) {
  PerfOptions options;
  options.sizes = {8, 5000, 16};
  EXPECT_EQ(region_bytes(options), 5000U);
  options.sizes = {1};
  EXPECT_EQ(region_bytes(options), 16U) << "the ranks find each other through two words";
}

TEST(PerfCache, SizesAsSysfsWritesThem) {
  EXPECT_EQ(parse_cache_size("32768K"), 32 * kMebi);
  EXPECT_EQ(parse_cache_size("8M"), 8 * kMebi);
  EXPECT_EQ(parse_cache_size("512"), 512U);
  for (const char* text : {"", "K", "12x"}) EXPECT_EQ(parse_cache_size(text), 0U) << text;
}

TEST(PerfCache, TheFlushIsNeverEmpty) { EXPECT_GE(cpu_flush_bytes(), kMebi / 4); }

}  // namespace
}  // namespace ringbell::tools
