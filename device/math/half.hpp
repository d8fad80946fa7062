// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit floats: IEEE binary16 and bfloat16. Values out of range become infinities. Where a GPU has an instruction
// it is used; its bits are the same but for NaN, which is put right here.
#ifndef RINGBELL_DEVICE_MATH_HALF_HPP_
#define RINGBELL_DEVICE_MATH_HALF_HPP_

#include <cstdint>

#include "device/math/narrow_float.hpp"

namespace ringbell::device {

namespace detail {

/// Two elements of a 16-bit format, added in float32 and rounded.
template <class Format>
RINGBELL_HD RINGBELL_INLINE std::uint32_t add_pair_by_float32(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t low =
      Format::from_float(add_rounded(Format::to_float(a & 0xffffU), Format::to_float(b & 0xffffU)));
  return low | (Format::from_float(add_rounded(Format::to_float(a >> 16), Format::to_float(b >> 16))) << 16);
}

}  // namespace detail

struct Float16 : NarrowFloat<5, 10, 0x7c00, 0x7c00, 0x7e00> {
  RINGBELL_HD static RINGBELL_INLINE float to_float(std::uint32_t code) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(code)));
    return value;
#else
    return NarrowFloat::to_float(code);
#endif
  }

  RINGBELL_HD static RINGBELL_INLINE std::uint32_t from_float(float value) {
#if defined(__CUDA_ARCH__)
    std::uint16_t code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return value == value ? code : kNan;
#else
    return NarrowFloat::from_float(value);
#endif
  }

  // One rounding instead of two: float32 has more than twice the bits, so the first of the two never shows.
  RINGBELL_HD static RINGBELL_INLINE std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    std::uint32_t sum;
    std::uint32_t numbers;  // 0xffff for each half that is one
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    asm("set.num.u32.f16x2 %0, %1, %1;" : "=r"(numbers) : "r"(sum));
    return (sum & numbers) | ((kNan * 0x10001U) & ~numbers);
#else
    return detail::add_pair_by_float32<Float16>(a, b);
#endif
  }
};

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

  RINGBELL_HD static RINGBELL_INLINE std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    std::uint32_t sum;
    std::uint32_t numbers;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    asm("set.num.u32.bf16x2 %0, %1, %1;" : "=r"(numbers) : "r"(sum));
    return (sum & numbers) | ((kNan * 0x10001U) & ~numbers);
#else
    return detail::add_pair_by_float32<BFloat16>(a, b);
#endif
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_HALF_HPP_
