// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversion between float32 and floats of 8 and 16 bits, in integer code so that both targets give the same bits and a
// CPU thread that flushes subnormals changes nothing. Not for arithmetic: values are folded in float32.
#ifndef RINGBELL_DEVICE_MATH_NARROW_FLOAT_HPP_
#define RINGBELL_DEVICE_MATH_NARROW_FLOAT_HPP_

#include <cstdint>

#include "device/math/rounded.hpp"

namespace ringbell::device {

inline constexpr std::uint32_t kFloat32Infinity = 0x7f800000;
inline constexpr std::uint32_t kFloat32Nan = 0x7fc00000;

/// A sign bit, `ExponentBits`, `MantissaBits`. `Infinity` is the first code above every finite one; it is a number only
/// in the formats that have infinities. `Overflow` is what a finite value too large becomes, and an infinity as well.
template <int ExponentBits, int MantissaBits, std::uint32_t Infinity, std::uint32_t Overflow, std::uint32_t Nan>
struct NarrowFloat {
  static constexpr int kBits = 1 + ExponentBits + MantissaBits;
  static constexpr std::uint32_t kMagnitudeMask = (1U << (kBits - 1)) - 1;
  static constexpr std::uint32_t kNan = Nan;
  static constexpr int kDroppedBits = 23 - MantissaBits;
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kMinNormal = kRebias + (1U << 23);
  // Codes at and above kInfinity: NaN, but for kInfinity itself where the format has infinities.
  static constexpr std::uint32_t kInfinity = Infinity;
  static constexpr bool kHasInfinity = Infinity != Nan;

  /// Exact. Bits of `code` above kBits are ignored; a NaN gives some NaN.
  RINGBELL_HD static RINGBELL_INLINE float to_float(std::uint32_t code) {
    const std::uint32_t magnitude = code & kMagnitudeMask;
    std::uint32_t bits = (magnitude << kDroppedBits) + kRebias;
    if (magnitude < (1U << MantissaBits)) {  // zero and subnormals: an integer times the smallest one, exact in float32
      constexpr std::uint32_t kSmallest = kRebias + (1U << 23) - (static_cast<std::uint32_t>(MantissaBits) << 23);
      bits = bits_as<std::uint32_t>(multiply_rounded(static_cast<float>(magnitude), bits_as<float>(kSmallest)));
    }
    if (magnitude >= kInfinity) bits = kHasInfinity && magnitude == kInfinity ? kFloat32Infinity : kFloat32Nan;
    return bits_as<float>(bits | ((code >> (kBits - 1)) << 31));
  }

  /// Nearest, ties to even; subnormals kept; a NaN gives kNan.
  RINGBELL_HD static RINGBELL_INLINE std::uint32_t from_float(float value) {
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > kFloat32Infinity) return kNan;
    // A normal result only drops bits. A subnormal one drops more, and the hidden bit counts; past 31 nothing is left.
    std::uint32_t kept = magnitude - kRebias;
    std::uint32_t dropped = kDroppedBits;
    if (magnitude < kMinNormal) {
      kept = (magnitude & 0x7fffffU) | 0x800000U;
      dropped = (kMinNormal >> 23) + kDroppedBits - (magnitude >> 23);
      dropped = dropped < 31 ? dropped : 31;
    }
    std::uint32_t code = (kept + (1U << (dropped - 1)) - 1 + ((kept >> dropped) & 1U)) >> dropped;
    if (code >= kInfinity) code = Overflow;
    return code | ((bits >> 31) << (kBits - 1));
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_NARROW_FLOAT_HPP_
