// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit floats: IEEE binary16 and bfloat16. Values out of range become infinities.
#ifndef RINGBELL_DEVICE_MATH_HALF_HPP_
#define RINGBELL_DEVICE_MATH_HALF_HPP_

#include <cstdint>

#include "device/math/narrow_float.hpp"

namespace ringbell::device {

using Float16 = NarrowFloat<5, 10, 0x7c00, 0x7c00, 0x7e00>;

/// The upper half of a float32. Same shape as NarrowFloat; nothing to rebias makes it shorter.
struct BFloat16 {
  static constexpr int kBits = 16;
  static constexpr std::uint32_t kInfinity = 0x7f80;
  static constexpr std::uint32_t kNan = 0x7fc0;

  RINGBELL_HD static RINGBELL_INLINE float to_float(std::uint32_t code) { return bits_as<float>(code << 16); }

  RINGBELL_HD static RINGBELL_INLINE std::uint32_t from_float(float value) {
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > kFloat32Infinity) return kNan;
    return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_HALF_HPP_
