// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// device/math/reduce.hpp on the CPU: every type and operation against tests/support/reference, and the numeric promises
// one by one. The GPU's bits are compared with these in tests/gpu/reduce_cross_test.cu.
#include "device/math/reduce.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/reference.hpp"

namespace ringbell::device {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32,    DType::kFloat64,    DType::kFloat16, DType::kBFloat16,
                             DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8,    DType::kUInt8,
                             DType::kInt32,      DType::kUInt32,     DType::kInt64,   DType::kUInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg};

std::vector<ReduceRule> all_rules(DType dtype) {
  std::vector<ReduceRule> rules;
  for (const ReduceOp op : kOps) rules.push_back({dtype, op, 0});
  for (const std::uint32_t world : {1U, 2U, 3U, 5U, 7U, 8U, 300U}) rules.push_back({dtype, ReduceOp::kAvg, world});
  return rules;
}

std::string name(ReduceRule rule) {
  return "dtype " + std::to_string(static_cast<int>(rule.dtype)) + " op " + std::to_string(static_cast<int>(rule.op)) +
         " divide_by " + std::to_string(rule.divide_by);
}

int bits_of(DType dtype) { return static_cast<int>(dtype_bytes(dtype)) * 8; }

std::uint64_t fold_words(std::uint64_t a, std::uint64_t b, ReduceRule rule) {
  const int bits = bits_of(rule.dtype);
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  std::uint64_t folded = 0;
  for (int at = 0; at < 64; at += bits) {
    folded |= test::fold_reference((a >> at) & mask, (b >> at) & mask, rule.dtype, rule.op, rule.divide_by) << at;
  }
  return folded;
}

/// Checks both widths, both operand orders and that the halves of a quad do not meet.
void expect_as_reference(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, DType dtype) {
  ASSERT_EQ(a.size() % 2, 0U);
  for (const ReduceRule rule : all_rules(dtype)) {
    for (std::size_t i = 0; i < a.size(); i += 2) {
      const std::uint64_t lo = fold_words(a[i], b[i], rule);
      const std::uint64_t hi = fold_words(a[i + 1], b[i + 1], rule);
      const Quad quad = reduce(Quad{a[i], a[i + 1]}, Quad{b[i], b[i + 1]}, rule);
      ASSERT_EQ(reduce(a[i], b[i], rule), lo) << name(rule) << std::hex << ", of " << a[i] << " and " << b[i];
      ASSERT_EQ(reduce(b[i + 1], a[i + 1], rule), hi)
          << name(rule) << std::hex << ", of " << b[i + 1] << " and " << a[i + 1];
      ASSERT_EQ(quad.lo, lo) << name(rule);
      ASSERT_EQ(quad.hi, hi) << name(rule);
    }
  }
}

std::uint64_t broadcast(std::uint64_t element, DType dtype) {
  std::uint64_t word = 0;
  for (int at = 0; at < 64; at += bits_of(dtype)) word |= element << at;
  return word;
}

std::uint64_t fold_one(std::uint64_t a, std::uint64_t b, DType dtype, ReduceOp op, std::uint32_t divide_by = 0) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits_of(dtype));
  return reduce(broadcast(a, dtype), broadcast(b, dtype), {dtype, op, divide_by}) & mask;
}

std::string type_name(const testing::TestParamInfo<DType>& type) {
  return "dtype" + std::to_string(static_cast<int>(type.param));
}

class ReduceOfType : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryType, ReduceOfType, testing::ValuesIn(kDTypes), type_name);

class ReduceOfByteType : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryByteType, ReduceOfByteType,
                         testing::Values(DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8, DType::kUInt8),
                         type_name);

class ReduceOfBoundedType : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryFloatOfUpTo32Bits, ReduceOfBoundedType,
                         testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                                         DType::kFloat8E5M2),
                         type_name);

TEST_P(ReduceOfByteType, AllPairsOfBytesFoldAsTheReference) {
  std::vector<std::uint64_t> a;
  std::vector<std::uint64_t> b;
  for (std::uint64_t x = 0; x < 256; ++x) {
    for (std::uint64_t y = 0; y < 256; y += 8) {
      std::uint64_t eight = 0;
      for (std::uint64_t i = 0; i < 8; ++i) eight |= (y + i) << (8 * i);
      a.push_back(x * 0x0101010101010101U);
      b.push_back(eight);
    }
  }
  expect_as_reference(a, b, GetParam());
}

TEST_P(ReduceOfType, AllPairsOfEdgeValuesFoldAsTheReference) {
  const int bits = bits_of(GetParam());
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  std::vector<std::uint64_t> edges;
  // Both sides of every power of two: every exponent's border, the subnormals', infinity's and the integers' ends.
  for (int bit = 0; bit < bits; ++bit) {
    for (const std::uint64_t base : {std::uint64_t{1} << bit, mask << bit}) {
      for (int away = -1; away <= 1; ++away) edges.push_back((base + static_cast<std::uint64_t>(away)) & mask);
    }
  }
  if (dtype_is_float(GetParam())) {
    const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
    for (const float value : {1.0F, 1.5F, 3.0F, 5.5F, 448.0F, 57344.0F, 65504.0F, 32768.0F, 0.0078125F}) {
      const std::uint64_t code = GetParam() == DType::kFloat64   ? bits_as<std::uint64_t>(static_cast<double>(value))
                                 : GetParam() == DType::kFloat32 ? bits_as<std::uint32_t>(value)
                                                                 : test::element_nearest(value, GetParam());
      for (const std::uint64_t near : {code - 1, code, code + 1}) {
        edges.push_back(near & mask);
        edges.push_back((near ^ sign) & mask);
      }
    }
  }
  std::vector<std::uint64_t> a;
  std::vector<std::uint64_t> b;
  for (const std::uint64_t x : edges) {
    for (const std::uint64_t y : edges) {
      a.push_back(broadcast(x, GetParam()));
      b.push_back(broadcast(y, GetParam()));
    }
  }
  if (a.size() % 2 != 0) {
    a.push_back(0);
    b.push_back(0);
  }
  if (bits <= 16) {  // one element in 4 or 8: the others are the pair before it, swapped
    for (std::size_t i = 1; i < a.size(); ++i) a[i] = (a[i] << bits) | (b[i - 1] & mask);
  }
  expect_as_reference(a, b, GetParam());
}

TEST_P(ReduceOfType, RandomWordsFoldAsTheReference) {
  constexpr std::uint64_t kWords = 20000;
  const std::uint64_t count = kWords * 8 / dtype_bytes(GetParam());
  for (const test::FillKind kind : {test::FillKind::kExact, test::FillKind::kMixed, test::FillKind::kBits}) {
    std::vector<std::uint64_t> a(kWords);
    std::vector<std::uint64_t> b(kWords);
    test::fill_input(a.data(), count, GetParam(), 0, 1, 20, kind);
    test::fill_input(b.data(), count, GetParam(), 1, 1, 20, kind);
    expect_as_reference(a, b, GetParam());
  }
}

std::vector<std::uint64_t> ring_by_reduce(const std::vector<std::vector<std::uint64_t>>& inputs, DType dtype,
                                          ReduceOp op, std::size_t start) {
  const std::size_t world = inputs.size();
  std::vector<std::uint64_t> folded = inputs[start];
  for (std::size_t step = 1; step < world; ++step) {
    const bool last = step + 1 == world;
    const ReduceRule rule{dtype, op, last && op == ReduceOp::kAvg ? static_cast<std::uint32_t>(world) : 0};
    for (std::size_t i = 0; i < folded.size(); ++i)
      folded[i] = reduce(folded[i], inputs[(start + step) % world][i], rule);
  }
  return folded;
}

TEST_P(ReduceOfType, AWholeRingIsTheReferenceBitForBitFromEveryStart) {
  constexpr std::uint64_t kWords = 64;
  const std::uint64_t count = kWords * 8 / dtype_bytes(GetParam());
  for (const std::size_t world : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    std::vector<std::vector<std::uint64_t>> inputs(world, std::vector<std::uint64_t>(kWords));
    std::vector<const void*> pointers;
    for (std::size_t rank = 0; rank < world; ++rank) {
      test::fill_input(inputs[rank].data(), count, GetParam(), static_cast<int>(rank), 3, world,
                       test::FillKind::kMixed);
      pointers.push_back(inputs[rank].data());
    }
    for (const ReduceOp op : kOps) {
      for (std::size_t start = 0; start < world; ++start) {
        std::vector<std::uint64_t> expected(kWords);
        test::ring_reference(expected.data(), pointers, count, GetParam(), op,
                             [&](std::uint64_t) { return static_cast<int>(start); });
        const std::vector<std::uint64_t> got = ring_by_reduce(inputs, GetParam(), op, start);
        ASSERT_EQ(test::difference(got.data(), expected.data(), count, GetParam()), "")
            << name({GetParam(), op, 0}) << " world " << world << " start " << start;
      }
    }
  }
}

TEST_P(ReduceOfBoundedType, ARingStaysInsideTheDocumentedBoundAndOneThatLostARankDoesNot) {
  constexpr std::uint64_t kWords = 2000;
  const std::uint64_t count = kWords * 8 / dtype_bytes(GetParam());
  for (const std::size_t world : {3U, 8U}) {
    std::vector<std::vector<std::uint64_t>> inputs(world, std::vector<std::uint64_t>(kWords));
    std::vector<const void*> pointers;
    for (std::size_t rank = 0; rank < world; ++rank) {
      test::fill_input(inputs[rank].data(), count, GetParam(), static_cast<int>(rank), 4, world,
                       test::FillKind::kMixed);
      pointers.push_back(inputs[rank].data());
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      std::vector<std::uint64_t> out = ring_by_reduce(inputs, GetParam(), op, 1);
      EXPECT_EQ(test::count_outside_bound(out.data(), pointers, count, GetParam(), op), 0U)
          << name({GetParam(), op, 0});
      // Eight roundings to 2 or 3 bits of mantissa may be off by as much as the sum itself: nothing to be found there.
      if (world == 8 && dtype_bytes(GetParam()) == 1) continue;
      out = ring_by_reduce({inputs.begin(), inputs.end() - 1}, GetParam(), op, 1);
      EXPECT_GT(test::count_outside_bound(out.data(), pointers, count, GetParam(), op), count / 10)
          << name({GetParam(), op, 0});
    }
  }
}

// Public fault report C01: rounding to 16 bits at every hop makes the answer depend on where a chunk starts.
TEST(Reduce, BFloat16RingOf256AndSevenOnesGivesTheDocumentedSumForEveryStartRank) {
  const float expected[8] = {256, 264, 264, 260, 260, 260, 260, 256};
  std::vector<std::vector<std::uint64_t>> inputs(8, std::vector<std::uint64_t>(1, broadcast(0x3f80, DType::kBFloat16)));
  inputs[0][0] = broadcast(0x4380, DType::kBFloat16);
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  for (std::size_t start = 0; start < 8; ++start) {
    const std::uint64_t sum = ring_by_reduce(inputs, DType::kBFloat16, ReduceOp::kSum, start)[0];
    EXPECT_EQ(BFloat16::to_float(static_cast<std::uint32_t>(sum & 0xffff)), expected[start]) << "start rank " << start;
    EXPECT_EQ(sum, broadcast(sum & 0xffff, DType::kBFloat16));
    EXPECT_EQ(test::count_outside_bound(&sum, pointers, 4, DType::kBFloat16, ReduceOp::kSum), 0U)
        << "start rank " << start;
  }
}

TEST(Reduce, SignedIntegersWrap) {
  EXPECT_EQ(fold_one(0x7f, 1, DType::kInt8, ReduceOp::kSum), 0x80U);
  EXPECT_EQ(fold_one(0x7fffffff, 2, DType::kInt32, ReduceOp::kProd), 0xfffffffeU);
  EXPECT_EQ(fold_one(0x80000000, 0xffffffff, DType::kInt32, ReduceOp::kProd), 0x80000000U);
  EXPECT_EQ(fold_one(0x8000000000000000, 0xffffffffffffffff, DType::kInt64, ReduceOp::kSum), 0x7fffffffffffffffU);
}

TEST(Reduce, IntegerAverageIsTheWrappedSumDividedTowardZero) {
  EXPECT_EQ(fold_one(static_cast<std::uint8_t>(-7), 0, DType::kInt8, ReduceOp::kAvg, 2), static_cast<std::uint8_t>(-3));
  EXPECT_EQ(fold_one(0x7f, 1, DType::kInt8, ReduceOp::kAvg, 2), static_cast<std::uint8_t>(-64));
  EXPECT_EQ(fold_one(0x80, 0, DType::kInt8, ReduceOp::kAvg, 1), 0x80U);
  EXPECT_EQ(fold_one(200, 55, DType::kUInt8, ReduceOp::kAvg, 2), 127U);
  EXPECT_EQ(fold_one(0x8000000000000000, 0, DType::kInt64, ReduceOp::kAvg, 2), 0xc000000000000000U);
  EXPECT_EQ(fold_one(5, 6, DType::kInt32, ReduceOp::kAvg, 0), 11U) << "before the last fold an average is a sum";
}

TEST(Reduce, FloatAverageScalesByTheReciprocalAndRoundsOnce) {
  // 7 * (1/3) in float32, not 7 / 3: the two differ in the last bit.
  const float third = 1.0F / 3.0F;
  EXPECT_EQ(fold_one(bits_as<std::uint32_t>(4.0F), bits_as<std::uint32_t>(3.0F), DType::kFloat32, ReduceOp::kAvg, 3),
            bits_as<std::uint32_t>(7.0F * third));
  // bfloat16 256 + 1 = 257 is halfway and would round to 256 first; 257/2 = 128.5 rounds to 128, 259/2 = 129.5 to 130.
  EXPECT_EQ(fold_one(0x4380, 0x4040, DType::kBFloat16, ReduceOp::kAvg, 2), 0x4302U);
}

TEST(Reduce, AnyNanGivesTheCanonicalOne) {
  struct Row {
    DType dtype;
    std::uint64_t nan, one, signalling, negative;
  };
  for (const Row& row :
       {Row{DType::kFloat32, 0x7fc00000, 0x3f800000, 0x7f800001, 0xffc12345},
        Row{DType::kFloat64, 0x7ff8000000000000, 0x3ff0000000000000, 0x7ff0000000000001, 0xfff8000000000123},
        Row{DType::kFloat16, 0x7e00, 0x3c00, 0x7c01, 0xfe12}, Row{DType::kBFloat16, 0x7fc0, 0x3f80, 0x7f81, 0xffc1},
        Row{DType::kFloat8E4M3, 0x7f, 0x38, 0x7f, 0xff}, Row{DType::kFloat8E5M2, 0x7f, 0x3c, 0x7d, 0xfe}}) {
    for (const ReduceOp op : kOps) {
      for (const std::uint64_t nan : {row.signalling, row.negative}) {
        EXPECT_EQ(fold_one(nan, row.one, row.dtype, op, 2), row.nan) << name({row.dtype, op, 0});
        EXPECT_EQ(fold_one(row.one, nan, row.dtype, op, 2), row.nan) << name({row.dtype, op, 0});
      }
    }
  }
}

TEST(Reduce, InfinityMinusInfinityAndZeroTimesInfinityGiveTheCanonicalNan) {
  EXPECT_EQ(fold_one(0x7f800000, 0xff800000, DType::kFloat32, ReduceOp::kSum), 0x7fc00000U);
  EXPECT_EQ(fold_one(0x7f800000, 0x80000000, DType::kFloat32, ReduceOp::kProd), 0x7fc00000U);
  EXPECT_EQ(fold_one(0x7ff0000000000000, 0xfff0000000000000, DType::kFloat64, ReduceOp::kSum), 0x7ff8000000000000U);
  EXPECT_EQ(fold_one(0xfc00, 0x7c00, DType::kFloat16, ReduceOp::kSum), 0x7e00U);
  EXPECT_EQ(fold_one(0x0000, 0xff80, DType::kBFloat16, ReduceOp::kProd), 0x7fc0U);
  EXPECT_EQ(fold_one(0x7c, 0xfc, DType::kFloat8E5M2, ReduceOp::kSum), 0x7fU);
}

TEST(Reduce, MinusZeroIsBelowPlusZero) {
  for (const DType dtype : kDTypes) {
    if (!dtype_is_float(dtype)) continue;
    const std::uint64_t minus_zero = std::uint64_t{1} << (bits_of(dtype) - 1);
    EXPECT_EQ(fold_one(0, minus_zero, dtype, ReduceOp::kMin), minus_zero);
    EXPECT_EQ(fold_one(minus_zero, 0, dtype, ReduceOp::kMin), minus_zero);
    EXPECT_EQ(fold_one(0, minus_zero, dtype, ReduceOp::kMax), 0U);
    EXPECT_EQ(fold_one(minus_zero, 0, dtype, ReduceOp::kMax), 0U);
    EXPECT_EQ(fold_one(minus_zero, minus_zero, dtype, ReduceOp::kSum), minus_zero);
  }
}

TEST(Reduce, EightBitFloatsSaturateAndSixteenBitFloatsOverflow) {
  EXPECT_EQ(fold_one(0x7e, 0x7e, DType::kFloat8E4M3, ReduceOp::kSum), 0x7eU);
  EXPECT_EQ(fold_one(0xfe, 0x7e, DType::kFloat8E4M3, ReduceOp::kProd), 0xfeU);
  EXPECT_EQ(fold_one(0x7b, 0x7b, DType::kFloat8E5M2, ReduceOp::kSum), 0x7bU);
  EXPECT_EQ(fold_one(0xfc, 0x3c, DType::kFloat8E5M2, ReduceOp::kSum), 0xfbU) << "an infinity saturates as well";
  EXPECT_EQ(fold_one(0xfc, 0x3c, DType::kFloat8E5M2, ReduceOp::kMin), 0xfcU)
      << "min and max return an operand as it is";
  EXPECT_EQ(fold_one(0x7bff, 0x7bff, DType::kFloat16, ReduceOp::kSum), 0x7c00U);
  EXPECT_EQ(fold_one(0x7f7f, 0x7f7f, DType::kBFloat16, ReduceOp::kSum), 0x7f80U);
}

TEST(Reduce, SubnormalsAreKept) {
  EXPECT_EQ(fold_one(1, 2, DType::kFloat32, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(1, 2, DType::kFloat64, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(1, 2, DType::kFloat16, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(1, 2, DType::kBFloat16, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(1, 2, DType::kFloat8E4M3, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(1, 2, DType::kFloat8E5M2, ReduceOp::kSum), 3U);
  EXPECT_EQ(fold_one(0x00800000, 0x3f000000, DType::kFloat32, ReduceOp::kProd), 0x00400000U);
}

TEST(Reduce, DivisorIsReadForAveragesOnly) {
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
      const std::uint64_t a = 0x3c3d3e3f40414243;
      const std::uint64_t b = 0x4344454647484940;
      EXPECT_EQ(reduce(a, b, {dtype, op, 3}), reduce(a, b, {dtype, op, 0})) << name({dtype, op, 3});
    }
  }
}

}  // namespace
}  // namespace ringbell::device
