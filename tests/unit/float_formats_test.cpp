// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversions of device/math between float32 and the narrow floats, against tests/support/reference.
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "device/math/fp8.hpp"
#include "device/math/half.hpp"
#include "tests/support/reference.hpp"

namespace ringbell::device {
namespace {

template <class FormatType, DType kType, std::uint32_t kLargestFinite>
struct Case {
  using Format = FormatType;
  static constexpr DType kDType = kType;
  static constexpr std::uint32_t kLargest = kLargestFinite;
  static constexpr std::uint32_t kCodes = 1U << Format::kBits;
  static constexpr std::uint32_t kSign = kCodes / 2;
  static constexpr bool kSaturates = Format::kBits == 8;
  static constexpr std::uint32_t kOverflow = kSaturates ? kLargest : kLargest + 1;
};

template <class T>
class FloatFormats : public testing::Test {};
using Cases = testing::Types<Case<Float16, DType::kFloat16, 0x7bff>, Case<BFloat16, DType::kBFloat16, 0x7f7f>,
                             Case<Float8E4M3, DType::kFloat8E4M3, 0x7e>, Case<Float8E5M2, DType::kFloat8E5M2, 0x7b>>;
TYPED_TEST_SUITE(FloatFormats, Cases);

TYPED_TEST(FloatFormats, EveryCodeHasTheValueItsFormatGivesIt) {
  for (std::uint32_t code = 0; code < TypeParam::kCodes; ++code) {
    const double expected = test::element_value(code, TypeParam::kDType);
    const float value = TypeParam::Format::to_float(code);
    ASSERT_EQ(std::isnan(value), std::isnan(expected)) << std::hex << code;
    if (std::isnan(expected)) continue;
    ASSERT_EQ(static_cast<double>(value), expected) << std::hex << code;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << std::hex << code;
  }
}

TYPED_TEST(FloatFormats, EveryCodeComesBackAndEveryNanBecomesTheCanonicalOne) {
  for (std::uint32_t code = 0; code < TypeParam::kCodes; ++code) {
    const float value = TypeParam::Format::to_float(code);
    std::uint32_t expected = code;
    if (std::isnan(value)) expected = TypeParam::Format::kNan;
    if (std::isinf(value) && TypeParam::kSaturates) expected = (code & TypeParam::kSign) | TypeParam::kLargest;
    ASSERT_EQ(TypeParam::Format::from_float(value), expected) << std::hex << code;
  }
}

// Every place where rounding changes its mind, subnormals and the overflow border included.
TYPED_TEST(FloatFormats, HalfwayGoesToEvenAndItsNeighboursToTheNearer) {
  for (std::uint32_t code = 0; code <= TypeParam::kLargest; ++code) {
    const double low = test::element_value(code, TypeParam::kDType);
    const double step = code == TypeParam::kLargest ? low - test::element_value(code - 1, TypeParam::kDType)
                                                    : test::element_value(code + 1, TypeParam::kDType) - low;
    const auto middle = static_cast<float>(low + step / 2);
    ASSERT_EQ(static_cast<double>(middle), low + step / 2) << "halfway is exact in float32";
    const std::uint32_t above = code == TypeParam::kLargest ? TypeParam::kOverflow : code + 1;
    const float below_middle = std::nextafter(middle, 0.0F);
    const float above_middle = std::nextafter(middle, std::numeric_limits<float>::infinity());
    ASSERT_EQ(TypeParam::Format::from_float(middle), code % 2 == 0 ? code : above) << std::hex << code;
    ASSERT_EQ(TypeParam::Format::from_float(below_middle), code) << std::hex << code;
    ASSERT_EQ(TypeParam::Format::from_float(above_middle), above) << std::hex << code;
    ASSERT_EQ(TypeParam::Format::from_float(-below_middle), TypeParam::kSign | code) << std::hex << code;
    ASSERT_EQ(TypeParam::Format::from_float(-above_middle), TypeParam::kSign | above) << std::hex << code;
  }
}

TYPED_TEST(FloatFormats, FloatsFromTheWholeRangeRoundAsTheReferenceDoes) {
  constexpr std::uint64_t kStep = 4093;  // odd: the low bits take every pattern
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStep) {
    const auto value = bits_as<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(TypeParam::Format::from_float(value), test::element_nearest(value, TypeParam::kDType))
        << std::hex << bits;
  }
}

TYPED_TEST(FloatFormats, ExtremesOverflowOrVanish) {
  using Format = typename TypeParam::Format;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Format::from_float(infinity), TypeParam::kOverflow);
  EXPECT_EQ(Format::from_float(-infinity), TypeParam::kSign | TypeParam::kOverflow);
  EXPECT_EQ(Format::from_float(std::numeric_limits<float>::max()), TypeParam::kOverflow);
  EXPECT_EQ(Format::from_float(std::numeric_limits<float>::denorm_min()), 0U);
  EXPECT_EQ(Format::from_float(-std::numeric_limits<float>::denorm_min()), TypeParam::kSign);
  for (const std::uint32_t nan :
       {0x7f800001U, 0x7fbfffffU, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffc00000U, 0xffffffffU}) {
    EXPECT_EQ(Format::from_float(bits_as<float>(nan)), Format::kNan) << std::hex << nan;
  }
}

TEST(FloatFormatLimits, AreTheDocumentedOnes) {
  EXPECT_EQ(Float16::to_float(0x7bff), 65504.0F);
  EXPECT_EQ(Float16::to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(BFloat16::to_float(0x0001), 0x1p-133F);
  EXPECT_EQ(Float8E4M3::to_float(0x7e), 448.0F);
  EXPECT_EQ(Float8E4M3::to_float(0x01), 0x1p-9F);
  EXPECT_EQ(Float8E5M2::to_float(0x7b), 57344.0F);
  EXPECT_EQ(Float8E5M2::to_float(0x01), 0x1p-16F);
  EXPECT_EQ(Float16::kNan, 0x7e00U);
  EXPECT_EQ(BFloat16::kNan, 0x7fc0U);
  EXPECT_EQ(Float8E4M3::kNan, 0x7fU);
  EXPECT_EQ(Float8E5M2::kNan, 0x7fU);
}

}  // namespace
}  // namespace ringbell::device
