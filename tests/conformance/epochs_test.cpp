// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Counters started just below their wraps: the flag's 2^32 - 1, the sign bit of 32 and 64 bits, the slot sets.
#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kFlagWrap = 0xffffffffull;  // flags run from 1 to this

struct Start {
  std::uint64_t epoch;
  int world;
};
void PrintTo(const Start& start, std::ostream* out) { *out << "epoch " << start.epoch << ", world " << start.world; }

class EpochsNear : public testing::TestWithParam<Start> {};

// 1,000 calls on all protocols in turn; each uses up to a few dozen slots, so every counter passes its wrap on the way.
TEST_P(EpochsNear, AWrapAThousandMixedCallsAreRightOnAllProtocols) {
  const std::vector<AllReduceCase> rows = pairwise_rows();
  std::vector<AllReduceCase> cases;
  for (std::size_t i = 0; i < 1000; ++i) {
    AllReduceCase c = rows[i % rows.size()];
    c.protocol = kProtocols[i % 3];
    c.algorithm = kAlgorithms[i / 4 % 2];
    c.count = std::uint64_t{1} << (i % 10);
    c.fill = i % 2 == 0 ? FillKind::kBits : FillKind::kMixed;
    cases.push_back(c);
  }
  Config config = cpu_config();
  config.slot_bytes = 1920;
  config.first_epoch = GetParam().epoch;
  EXPECT_EQ(suite_failure(cases, run_on_threads(GetParam().world, config, cases, 5)), "");
}

INSTANTIATE_TEST_SUITE_P(Wraps, EpochsNear,
                         testing::Values(Start{(1ull << 31) - 300, 2}, Start{(1ull << 32) - 300, 2},
                                         Start{kFlagWrap - 9, 3}, Start{kFlagWrap - 500, 4}, Start{kFlagWrap - 1, 2},
                                         Start{2 * kFlagWrap - 100, 3}, Start{(1ull << 33) - 300, 2},
                                         Start{(1ull << 63) - 300, 2}, Start{5, 3}, Start{7, 2}, Start{8, 2}));

}  // namespace
}  // namespace ringbell::test
