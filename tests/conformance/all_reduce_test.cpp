// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-test: timeout=180 args=--gtest_filter=AllReduce.*:AllReduce/*
// ringbell-test: name=by_pairs label=ci timeout=900 sanitize=none args=--gtest_filter=AllReduceByPairs/*
// ringbell-test: name=full label=long timeout=14400 sanitize=none args=--gtest_filter=AllReduceFull/*
//
// Every world, protocol, count, type, operation, alignment and placement against the reference, bit for bit, and the
// same bits on every rank. One communicator serves all cases of a world.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

// Around words, quads, lines, one slot of 1920 bytes and a few rounds of them.
constexpr std::uint64_t kCounts[] = {0,  1,  2,  3,   4,   5,   7,   8,   9,   15,  16,   17,   29,   30,   31,   63,
                                     64, 65, 99, 127, 240, 241, 257, 479, 480, 481, 1000, 1023, 1025, 1920, 2049, 4111};

Config small_slots() {
  Config config = cpu_config();
  config.slot_bytes = 1920;
  return config;
}

void expect_right(int world, const Config& config, const std::vector<AllReduceCase>& cases, std::uint64_t seed,
                  double limit_s = 60) {
  SCOPED_TRACE("world " + std::to_string(world) + ", slot " + std::to_string(config.slot_bytes));
  EXPECT_EQ(suite_failure(cases, run_on_threads(world, config, cases, seed, limit_s)), "");
}

TEST(AllReduce, TheRowsHoldEveryPairOfTypeOperationAlignmentPlacementAndKindOfValues) {
  const std::vector<AllReduceCase> rows = pairwise_rows();
  EXPECT_EQ(missing_pairs(rows), std::vector<std::string>{});
  EXPECT_FALSE(missing_pairs({rows.begin(), rows.begin() + 100}).empty()) << "the check must be able to fail";
}

TEST(AllReduce, ASpoiltResultIsFound) {
  const std::vector<AllReduceCase> cases(3, AllReduceCase{.count = 50});
  std::vector<SuiteResult> results = run_on_threads(2, cpu_config(), cases, 1);
  EXPECT_EQ(suite_failure(cases, results), "");
  results[1].hashes[2] ^= 1;
  EXPECT_NE(suite_failure(cases, results), "");
  const PlanBasis basis = plan_basis(2, DeviceKind::kCpu, 0);
  EXPECT_NE(expected_result(cases[0], 7, 1, basis), expected_result(cases[0], 8, 1, basis));
}

class AllReduceOfWorld : public testing::TestWithParam<int> {};

// Each row once a protocol, with counts in turn; with many more ranks than cores each row once, protocols in turn.
std::vector<AllReduceCase> every_pair(int world, Algorithm algorithm) {
  std::vector<AllReduceCase> cases;
  std::size_t turn = static_cast<std::size_t>(world);
  for (std::size_t p = 0; p < std::size(kProtocols); ++p) {
    std::size_t row = 0;
    for (AllReduceCase c : pairwise_rows()) {
      if (world >= 7 && row++ / 2 % 3 != p) continue;
      c.protocol = kProtocols[p];
      c.algorithm = algorithm;
      c.count = kCounts[turn++ % std::size(kCounts)];
      cases.push_back(c);
    }
  }
  return cases;
}

TEST_P(AllReduceOfWorld, EveryCountAndEveryPairBitForBitOnEveryProtocolOverTheRing) {
  expect_right(GetParam(), small_slots(), every_pair(GetParam(), Algorithm::kRing), 11);
}

TEST_P(AllReduceOfWorld, EveryCountAndEveryPairBitForBitOnEveryProtocolInOneShot) {
  expect_right(GetParam(), small_slots(), every_pair(GetParam(), Algorithm::kOneShot), 11);
}

// Calls of both algorithms and all protocols in any order share windows, headers and epochs.
TEST_P(AllReduceOfWorld, AlgorithmsAndProtocolsInTurn) {
  std::vector<AllReduceCase> cases;
  std::size_t turn = 0;
  for (AllReduceCase c : pairwise_rows()) {
    c.protocol = kProtocols[turn % 3];
    c.algorithm = kAlgorithms[turn / 2 % 2];
    c.count = kCounts[turn * 7 % std::size(kCounts)];
    ++turn;
    cases.push_back(c);
  }
  expect_right(GetParam(), small_slots(), cases, 13);
}

TEST_P(AllReduceOfWorld, SlotsOfTheDefaultSizeAndProtocolByPlan) {
  std::vector<AllReduceCase> cases;
  const auto rows = pairwise_rows();
  std::size_t row = 0;
  for (std::uint64_t count : {1u, 1000u, 4097u, 15359u, 15361u, 30720u, 61441u}) {
    for (Protocol protocol : {Protocol::kAuto, Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
      AllReduceCase c = rows[row++ * 7 % rows.size()];
      c.protocol = protocol;
      c.algorithm = row % 3 == 0 ? Algorithm::kOneShot : Algorithm::kAuto;
      c.count = count;
      cases.push_back(c);
    }
  }
  expect_right(GetParam(), cpu_config(), cases, 12);
}

INSTANTIATE_TEST_SUITE_P(AllReduce, AllReduceOfWorld, testing::ValuesIn(kWorlds));

class ByPairs : public testing::TestWithParam<int> {};

TEST_P(ByPairs, EveryCountWithEveryRow) {
  if (!asked_for("ByPairs")) GTEST_SKIP() << "takes minutes: runs by name";
  for (Protocol protocol : kProtocols) {
    std::vector<AllReduceCase> cases;
    for (std::uint64_t count : kCounts) {
      for (AllReduceCase c : pairwise_rows()) {
        c.protocol = protocol;
        c.algorithm = kAlgorithms[cases.size() / 3 % 2];
        c.count = count;
        cases.push_back(c);
      }
    }
    expect_right(GetParam(), small_slots(), cases, 21, 600);
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduceByPairs, ByPairs, testing::ValuesIn(kWorlds));

class Full : public testing::TestWithParam<int> {};

TEST_P(Full, EveryCombination) {
  if (!asked_for("Full")) GTEST_SKIP() << "takes hours: runs by name";
  for (Protocol protocol : kProtocols) {
    for (std::uint64_t count : kCounts) {
      for (Algorithm algorithm : kAlgorithms) {
        std::vector<AllReduceCase> cases;
        for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
          for (ReduceOp op : kOps) {
            for (unsigned in : kShifts) {
              for (unsigned out : kShifts) {
                for (Placement placement : {Placement::kOutOfPlace, Placement::kInPlace, Placement::kMixed}) {
                  if (placement == Placement::kInPlace && in != out) continue;  // `in` is not used there
                  for (FillKind fill : {FillKind::kMixed, FillKind::kBits}) {
                    cases.push_back(
                        {count, static_cast<DType>(dtype), op, protocol, in, out, placement, fill, algorithm});
                  }
                }
              }
            }
          }
        }
        expect_right(GetParam(), small_slots(), cases, 31, 1800);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduceFull, Full, testing::ValuesIn(kWorlds));

}  // namespace
}  // namespace ringbell::test
