// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which core a rank of perf measures on.
#include "tools/own_core.hpp"

#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace ringbell::tools {
namespace {

std::vector<int> cores(int count, int first = 0) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST(OwnCore, RanksAreFarApartAndNotOnTheFirstCore) {
  EXPECT_EQ(core_of_rank(cores(32), 0, 2), 8);
  EXPECT_EQ(core_of_rank(cores(32), 1, 2), 24);
  EXPECT_EQ(core_of_rank(cores(32), 7, 8), 30);
  EXPECT_EQ(core_of_rank(cores(8, 40), 1, 2), 46);
}

TEST(OwnCore, FewCoresAreLeftToTheSystem) {
  EXPECT_EQ(core_of_rank(cores(2), 0, 2), -1);
  EXPECT_EQ(core_of_rank(cores(7), 1, 2), -1);
  EXPECT_EQ(core_of_rank({}, 0, 1), -1);
  EXPECT_EQ(core_of_rank(cores(4), 0, 1), 2);
}

TEST(OwnCore, OnlyTheCallingThreadMoves) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t there;
  std::thread([&] {
    stay_on_own_core(0, 1);
    (void)sched_getaffinity(0, sizeof there, &there);
  }).join();
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(CPU_COUNT(&there), CPU_COUNT(&before) < 4 ? CPU_COUNT(&before) : 1);
}

}  // namespace
}  // namespace ringbell::tools
