// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The numbers that a table shows of a row's times.
#include "tools/statistics.hpp"

#include <numeric>

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

TEST(Statistics, QuantilesOfKnownSamples) {
  std::vector<double> samples(1001);
  std::iota(samples.begin(), samples.end(), 0.0);
  std::swap(samples.front(), samples[700]);  // order does not matter
  const Summary summary = summarize(samples);
  EXPECT_DOUBLE_EQ(summary.p10, 100);
  EXPECT_DOUBLE_EQ(summary.p50, 500);
  EXPECT_DOUBLE_EQ(summary.p99, 990);
  EXPECT_DOUBLE_EQ(summary.p999, 999);
  EXPECT_DOUBLE_EQ(summary.max, 1000);
}

TEST(Statistics, TheMedianOfTwoIsTheirMean) { EXPECT_DOUBLE_EQ(summarize({3, 1}).p50, 2); }

TEST(Statistics, OneSampleIsEverything) {
  const Summary summary = summarize({7});
  EXPECT_EQ(summary.p10, 7);
  EXPECT_EQ(summary.p50, 7);
  EXPECT_EQ(summary.p999, 7);
  EXPECT_EQ(summary.max, 7);
  EXPECT_EQ(summary.cv, 0);
}

TEST(Statistics, NoSampleIsZero) { EXPECT_EQ(summarize({}).max, 0); }

TEST(Statistics, VariationIsTheSampleDeviationOverTheMean) {
  EXPECT_DOUBLE_EQ(summarize({2, 4, 4, 4, 5, 5, 7, 9}).cv, std::sqrt(32.0 / 7.0) / 5.0);
  EXPECT_DOUBLE_EQ(summarize({3, 3, 3}).cv, 0);
}

TEST(Statistics, QuantilesAreInOrder) {
  const Summary summary = summarize({5, 1, 4, 1, 5, 9, 2, 6});
  EXPECT_LE(summary.p10, summary.p50);
  EXPECT_LE(summary.p50, summary.p99);
  EXPECT_LE(summary.p99, summary.p999);
  EXPECT_LE(summary.p999, summary.max);
}

TEST(Statistics, ARatioIsTheMedianOverRoundsWithItsSpread) {
  const Ratio ratio = ratio_over_rounds({10, 20, 90, 40, 50}, {10, 10, 10, 10, 10});
  EXPECT_DOUBLE_EQ(ratio.median, 4);
  EXPECT_DOUBLE_EQ(ratio.lowest, 1);
  EXPECT_DOUBLE_EQ(ratio.highest, 9);
}

TEST(Statistics, ARatioPairsTheRoundsThatBothHave) {
  const Ratio ratio = ratio_over_rounds({4, 6, 100}, {2, 2});
  EXPECT_DOUBLE_EQ(ratio.median, 2.5);
  EXPECT_DOUBLE_EQ(ratio.highest, 3);
  EXPECT_EQ(ratio_over_rounds({}, {1}).median, 0);
  EXPECT_EQ(ratio_over_rounds({1, 2}, {0, 4}).median, 0.5) << "a round without time is no round";
}

TEST(Statistics, BandwidthsAsInNcclTests) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth_gbps(1e9, 1e6), 1);
  EXPECT_DOUBLE_EQ(bus_bandwidth_gbps(10, 4), 15);
  EXPECT_DOUBLE_EQ(bus_bandwidth_gbps(10, 1), 0);
  EXPECT_EQ(algorithm_bandwidth_gbps(8, 0), 0);
}

}  // namespace
}  // namespace ringbell::tools
