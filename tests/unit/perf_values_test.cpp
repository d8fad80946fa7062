// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's checker: what it expects is what the reference computes, in whatever order the ring folds, and it notices.
#include "tools/perf_values.hpp"

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/support/reference.hpp"
#include "tools/perf_buffers.hpp"

namespace ringbell::tools {
namespace {

constexpr std::uint64_t kCount = 1000;
constexpr std::uint64_t kSeed = 7;

using Bytes = std::vector<unsigned char>;

Bytes elements(const ValueRule& rule, const std::function<std::uint64_t(std::uint64_t)>& element) {
  const std::size_t width = rule.bits / 8;
  Bytes bytes(kCount * width);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::uint64_t code = element(i);
    std::memcpy(bytes.data() + i * width, &code, width);
  }
  return bytes;
}

Bytes input(const ValueRule& rule, std::uint32_t rank) {
  return elements(rule, [&](std::uint64_t i) { return input_element(rule, rank, i); });
}

struct Case {
  DType dtype;
  ReduceOp op;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) cases.push_back({static_cast<DType>(dtype), static_cast<ReduceOp>(op)});
  }
  return cases;
}

class PerfValues : public testing::TestWithParam<Case> {};

TEST_P(PerfValues, ExpectedIsTheReferenceInEveryOrderOfTheRing) {
  const auto [dtype, op] = GetParam();
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const ValueRule rule = value_rule(dtype, op, ranks, kSeed, 3);
    std::vector<Bytes> inputs;
    std::vector<const void*> pointers;
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input(rule, static_cast<std::uint32_t>(rank)));
    for (const Bytes& bytes : inputs) pointers.push_back(bytes.data());
    const Bytes expected = elements(rule, [&](std::uint64_t i) { return expected_element(rule, i); });
    Bytes out(expected.size());
    for (int shift = 0; shift < ranks; ++shift) {
      test::ring_reference(out.data(), pointers, kCount, dtype, op, [&](std::uint64_t i) {
        return static_cast<int>((i + static_cast<std::uint64_t>(shift)) % ranks);
      });
      ASSERT_EQ(test::difference(out.data(), expected.data(), kCount, dtype), "") << ranks << " ranks, shift " << shift;
    }
  }
}

TEST_P(PerfValues, TheCheckerFindsOneFlippedBitAndPoison) {
  const auto [dtype, op] = GetParam();
  const ValueRule rule = value_rule(dtype, op, 3, kSeed, 5);
  const Bytes expected = elements(rule, [&](std::uint64_t i) { return expected_element(rule, i); });
  const std::unique_ptr<Buffers> buffers = make_cpu_buffers(expected.size());
  void* const out = buffers->out();
  buffers->copy_from_host(out, expected.data(), expected.size());
  EXPECT_EQ(buffers->count_wrong(out, rule, kCount), 0U);
  for (const std::size_t at : {std::size_t{0}, expected.size() / 2, expected.size() - 1}) {
    for (int bit = 0; bit < 8; ++bit) {
      auto* const byte = static_cast<unsigned char*>(out) + at;
      *byte = static_cast<unsigned char>(*byte ^ (1U << bit));
      EXPECT_EQ(buffers->count_wrong(out, rule, kCount), 1U) << "byte " << at << " bit " << bit;
      *byte = static_cast<unsigned char>(*byte ^ (1U << bit));
    }
  }
  buffers->poison(out, poison_byte(rule), expected.size());
  EXPECT_GT(buffers->count_wrong(out, rule, kCount), kCount * 9 / 10);
}

TEST_P(PerfValues, ValuesDependOnCallSeedAndRank) {
  const auto [dtype, op] = GetParam();
  const Bytes base = input(value_rule(dtype, op, 3, kSeed, 1), 0);
  EXPECT_NE(base, input(value_rule(dtype, op, 3, kSeed, 2), 0));
  EXPECT_NE(base, input(value_rule(dtype, op, 3, kSeed + 1, 1), 0));
  EXPECT_NE(base, input(value_rule(dtype, op, 3, kSeed, 1), 1));
  const ValueRule old = value_rule(dtype, op, 3, kSeed, 1);
  const ValueRule rule = value_rule(dtype, op, 3, kSeed, 2);
  std::uint64_t same = 0;  // yesterday's result must not pass as today's
  for (std::uint64_t i = 0; i < kCount; ++i) same += expected_element(old, i) == expected_element(rule, i) ? 1U : 0U;
  EXPECT_LT(same, kCount * 4 / 5);
}

TEST_P(PerfValues, FillWritesTheInput) {
  const auto [dtype, op] = GetParam();
  const ValueRule rule = value_rule(dtype, op, 4, kSeed, 9);
  const Bytes expected = input(rule, 2);
  const std::unique_ptr<Buffers> buffers = make_cpu_buffers(expected.size());
  buffers->fill(buffers->in(), rule, 2, kCount);
  Bytes got(expected.size());
  buffers->copy_to_host(got.data(), buffers->in(), got.size());
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(All, PerfValues, testing::ValuesIn(all_cases()), [](const auto& parameter) {
  return std::string(dtype_name(parameter.param.dtype)) + "_" + reduce_op_name(parameter.param.op);
});

TEST(PerfHash, EveryByteCounts) {
  std::vector<unsigned char> data(37, 0);
  std::set<std::uint64_t> hashes{hash_output(data.data(), data.size())};
  for (unsigned char& byte : data) {
    byte = 1;
    hashes.insert(hash_output(data.data(), data.size()));
    byte = 0x80;
    hashes.insert(hash_output(data.data(), data.size()));
    byte = 0;
  }
  for (std::size_t length = 0; length < data.size(); ++length) hashes.insert(hash_output(data.data(), length));
  EXPECT_EQ(hashes.size(), 1 + 2 * data.size() + data.size());
}

}  // namespace
}  // namespace ringbell::tools
