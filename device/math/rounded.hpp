// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Float arithmetic rounded once per operation, the same bits on CPU and GPU whatever the flags say about contraction,
// and the bit casts around it. Not for conversions between formats (narrow_float.hpp) nor for NaN rules (reduce.hpp).
#ifndef RINGBELL_DEVICE_MATH_ROUNDED_HPP_
#define RINGBELL_DEVICE_MATH_ROUNDED_HPP_

#include <cstdint>

#include "device/config.hpp"

// Would drop the NaN checks silently. nvcc tells nobody about -ftz=true; the test that compares both targets sees that.
#if defined(__FAST_MATH__)
#error "ringbell's results are defined to the bit: build without -ffast-math"
#endif

namespace ringbell::device {

template <class To, class From>
RINGBELL_HD RINGBELL_INLINE constexpr To bits_as(From from) {
  return __builtin_bit_cast(To, from);
}

// On the CPU no expression here feeds a product into a sum, so there is nothing that a compiler could contract.
RINGBELL_HD RINGBELL_INLINE float add_rounded(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

RINGBELL_HD RINGBELL_INLINE double add_rounded(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

RINGBELL_HD RINGBELL_INLINE float multiply_rounded(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

RINGBELL_HD RINGBELL_INLINE double multiply_rounded(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

/// 1/x, correctly rounded: what IEEE division gives.
RINGBELL_HD RINGBELL_INLINE float reciprocal_rounded(float x) {
#if defined(__CUDA_ARCH__)
  return __frcp_rn(x);
#else
  return 1.0F / x;
#endif
}

RINGBELL_HD RINGBELL_INLINE double reciprocal_rounded(double x) {
#if defined(__CUDA_ARCH__)
  return __drcp_rn(x);
#else
  return 1.0 / x;
#endif
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_ROUNDED_HPP_
