// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The one place where element type and operation meet: folds words of packed elements, the same bits on CPU and GPU.
// Not for polls (call it after the data has arrived), and it moves nothing. runtime/README.md has the rules in words.
#ifndef RINGBELL_DEVICE_MATH_REDUCE_HPP_
#define RINGBELL_DEVICE_MATH_REDUCE_HPP_

#include <cstdint>

#include "device/config.hpp"
#include "device/math/fp8.hpp"
#include "device/math/half.hpp"
#include "device/math/rounded.hpp"
#include "device/ringbell_types.hpp"

namespace ringbell::device {

/// What every fold of one step does.
struct ReduceRule {
  DType dtype;
  ReduceOp op;
  /// 0: not the last fold, kAvg is a sum. N > 0: the last fold of kAvg over N ranks, which divides. Read for kAvg only.
  std::uint32_t divide_by;
};

namespace detail {

/// An integer or float element as an integer to compare. A float is NaN when its magnitude is above `infinity`.
struct ElementShape {
  std::uint32_t bits;
  bool is_signed;
  bool is_float;
  std::uint64_t infinity;
  std::uint64_t nan;
};

RINGBELL_HD RINGBELL_INLINE ElementShape element_shape(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return {32, true, true, kFloat32Infinity, kFloat32Nan};
    case DType::kFloat64: return {64, true, true, 0x7ff0000000000000, 0x7ff8000000000000};
    case DType::kFloat16: return {16, true, true, Float16::kInfinity, Float16::kNan};
    case DType::kBFloat16: return {16, true, true, BFloat16::kInfinity, BFloat16::kNan};
    case DType::kFloat8E4M3: return {8, true, true, Float8E4M3::kInfinity - 1, Float8E4M3::kNan};
    case DType::kFloat8E5M2: return {8, true, true, Float8E5M2::kInfinity, Float8E5M2::kNan};
    case DType::kInt8: return {8, true, false, 0, 0};
    case DType::kUInt8: return {8, false, false, 0, 0};
    case DType::kInt32: return {32, true, false, 0, 0};
    case DType::kUInt32: return {32, false, false, 0, 0};
    case DType::kInt64: return {64, true, false, 0, 0};
    case DType::kUInt64: break;
  }
  return {64, false, false, 0, 0};
}

// Min and max pick one operand's bits: no float format is ever unpacked. Elements are compared at the top of a 64-bit
// word.
RINGBELL_HD RINGBELL_INLINE std::uint64_t pick_word(std::uint64_t a, std::uint64_t b, const ElementShape& shape,
                                                    bool smaller) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const std::uint32_t spare = 64 - shape.bits;
  std::uint64_t picked = 0;
  for (std::uint32_t at = 0; at < 64; at += shape.bits) {
    const std::uint64_t x = (a >> at) << spare;
    const std::uint64_t y = (b >> at) << spare;
    // Flipped so that unsigned order is the elements' order; of a negative float every bit, so that -0 < +0.
    const std::uint64_t x_key = x ^ (shape.is_float && (x & kSign) != 0 ? ~std::uint64_t{0}
                                     : shape.is_signed                  ? kSign
                                                                        : 0);
    const std::uint64_t y_key = y ^ (shape.is_float && (y & kSign) != 0 ? ~std::uint64_t{0}
                                     : shape.is_signed                  ? kSign
                                                                        : 0);
    std::uint64_t element = ((x_key < y_key) == smaller ? x : y) >> spare;
    const std::uint64_t limit = shape.infinity << spare;
    if (shape.is_float && ((x & ~kSign) > limit || (y & ~kSign) > limit)) element = shape.nan;
    picked |= element << at;
  }
  return picked;
}

/// Sum of all elements of a word at once: carries stop at each element's top bit.
RINGBELL_HD RINGBELL_INLINE std::uint64_t add_integers(std::uint64_t a, std::uint64_t b, std::uint32_t bits) {
  const std::uint64_t top = bits == 8 ? 0x8080808080808080 : bits == 32 ? 0x8000000080000000 : 0x8000000000000000;
  return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

RINGBELL_HD RINGBELL_INLINE std::uint64_t multiply_integers(std::uint64_t a, std::uint64_t b, std::uint32_t bits) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  std::uint64_t product = 0;
  for (std::uint32_t at = 0; at < 64; at += bits) product |= (((a >> at) * (b >> at)) & mask) << at;
  return product;
}

/// Each element divided by `divisor`, toward zero. Magnitudes are divided, so that the most negative value is no case.
RINGBELL_HD RINGBELL_INLINE std::uint64_t divide_integers(std::uint64_t sum, std::uint32_t divisor,
                                                          const ElementShape& shape) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - shape.bits);
  std::uint64_t quotient = 0;
  for (std::uint32_t at = 0; at < 64; at += shape.bits) {
    const std::uint64_t element = (sum >> at) & mask;
    const bool negative = shape.is_signed && ((element >> (shape.bits - 1)) & 1U) != 0;
    const std::uint64_t magnitude = negative ? (0 - element) & mask : element;
    const std::uint64_t divided = magnitude / divisor;
    quotient |= ((negative ? 0 - divided : divided) & mask) << at;
  }
  return quotient;
}

template <class Float>
RINGBELL_HD RINGBELL_INLINE Float canonical(Float value, Float nan) {
  return value == value ? value : nan;
}

/// Sum or product, then times `scale`: 1 changes nothing and is cheaper than a branch for every operation.
template <class Float>
RINGBELL_HD RINGBELL_INLINE Float fold_floats(Float a, Float b, bool product, Float scale) {
  return multiply_rounded(product ? multiply_rounded(a, b) : add_rounded(a, b), scale);
}

RINGBELL_HD RINGBELL_INLINE std::uint64_t fold_float64(std::uint64_t a, std::uint64_t b, bool product, double scale) {
  const double nan = bits_as<double>(std::uint64_t{0x7ff8000000000000});
  return bits_as<std::uint64_t>(canonical(fold_floats(bits_as<double>(a), bits_as<double>(b), product, scale), nan));
}

/// `fold` on both float32 of a word; every NaN becomes the canonical one.
template <class Fold>
RINGBELL_HD RINGBELL_INLINE std::uint64_t each_float32(std::uint64_t a, std::uint64_t b, Fold fold) {
  std::uint64_t folded = 0;
  for (int at = 0; at < 64; at += 32) {
    const float x = bits_as<float>(static_cast<std::uint32_t>(a >> at));
    const float y = bits_as<float>(static_cast<std::uint32_t>(b >> at));
    folded |= std::uint64_t{bits_as<std::uint32_t>(canonical(fold(x, y), bits_as<float>(kFloat32Nan)))} << at;
  }
  return folded;
}

/// The formats that are folded in float32; from_float makes their NaN.
template <class Format>
RINGBELL_HD RINGBELL_INLINE std::uint64_t fold_narrow(std::uint64_t a, std::uint64_t b, bool product, float scale) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << Format::kBits) - 1;
  std::uint64_t folded = 0;
  for (int at = 0; at < 64; at += Format::kBits) {
    const float x = Format::to_float(static_cast<std::uint32_t>((a >> at) & kMask));
    const float y = Format::to_float(static_cast<std::uint32_t>((b >> at) & kMask));
    const float element = fold_floats(x, y, product, scale);
    folded |= std::uint64_t{Format::from_float(element)} << at;
  }
  return folded;
}

/// `fold` on one word, or on both of a quad when `words` is 2: a loop, so that its code is there once.
template <class Fold>
RINGBELL_HD RINGBELL_INLINE Quad each_word(Quad a, Quad b, int words, Fold fold) {
  Quad folded{0, 0};
  for (int word = 0; word < words; ++word) {
    folded.lo = folded.hi;
    folded.hi = fold(a.lo, b.lo);
    a.lo = a.hi;
    b.lo = b.hi;
  }
  return folded;
}

/// Everything but the fast paths, out of line so that a caller keeps the registers of a call and not of twelve types.
/// The result is in `hi` when `words` is 1.
RINGBELL_HD inline __attribute__((noinline)) Quad reduce_words(Quad a, Quad b, ReduceRule rule, int words) {
  if (rule.op == ReduceOp::kMin || rule.op == ReduceOp::kMax) {
    const ElementShape shape = element_shape(rule.dtype);
    const bool smaller = rule.op == ReduceOp::kMin;
    return each_word(a, b, words, [&](std::uint64_t x, std::uint64_t y) { return pick_word(x, y, shape, smaller); });
  }
  const bool product = rule.op == ReduceOp::kProd;
  const bool divide = rule.op == ReduceOp::kAvg && rule.divide_by != 0;
  if (static_cast<std::uint8_t>(rule.dtype) > static_cast<std::uint8_t>(DType::kFloat8E5M2)) {
    const ElementShape shape = element_shape(rule.dtype);
    return each_word(a, b, words, [&](std::uint64_t x, std::uint64_t y) {
      if (product) return multiply_integers(x, y, shape.bits);
      const std::uint64_t sum = add_integers(x, y, shape.bits);
      return divide ? divide_integers(sum, rule.divide_by, shape) : sum;
    });
  }
  if (rule.dtype == DType::kFloat64) {
    const double scale = divide ? reciprocal_rounded(static_cast<double>(rule.divide_by)) : 1.0;
    return each_word(a, b, words, [&](std::uint64_t x, std::uint64_t y) { return fold_float64(x, y, product, scale); });
  }
  const float scale = divide ? reciprocal_rounded(static_cast<float>(rule.divide_by)) : 1.0F;
  if (rule.dtype == DType::kFloat32) {
    return each_word(a, b, words, [&](std::uint64_t v, std::uint64_t w) {
      return each_float32(v, w, [&](float x, float y) { return fold_floats(x, y, product, scale); });
    });
  }
  const auto narrow = [&](auto format) {
    return each_word(a, b, words, [&](std::uint64_t x, std::uint64_t y) {
      return fold_narrow<decltype(format)>(x, y, product, scale);
    });
  };
  if (rule.dtype == DType::kFloat16) return narrow(Float16{});
  if (rule.dtype == DType::kBFloat16) return narrow(BFloat16{});
  return rule.dtype == DType::kFloat8E4M3 ? narrow(Float8E4M3{}) : narrow(Float8E5M2{});
}

RINGBELL_HD RINGBELL_INLINE std::uint64_t add_float32(std::uint64_t a, std::uint64_t b) {
  return each_float32(a, b, [](float x, float y) { return add_rounded(x, y); });
}

template <class Format>
RINGBELL_HD RINGBELL_INLINE std::uint64_t add_pairs(std::uint64_t a, std::uint64_t b) {
  const std::uint32_t low = Format::add_pair(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b));
  const std::uint32_t high = Format::add_pair(static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b >> 32));
  return low | (std::uint64_t{high} << 32);
}

/// The folds worth inlining: sums (an average is one until its last fold) of the types that models are served in.
RINGBELL_HD RINGBELL_INLINE bool is_sum(ReduceRule rule) {
  return rule.op == ReduceOp::kSum || (rule.op == ReduceOp::kAvg && rule.divide_by == 0);
}

}  // namespace detail

/// Folds 8 bytes of packed elements (little endian). The operands may be given in either order: the bits are the same.
RINGBELL_HD RINGBELL_INLINE std::uint64_t reduce(std::uint64_t arrived, std::uint64_t own, ReduceRule rule) {
  if (detail::is_sum(rule)) {
    if (rule.dtype == DType::kFloat32) return detail::add_float32(arrived, own);
    if (rule.dtype == DType::kBFloat16) return detail::add_pairs<BFloat16>(arrived, own);
    if (rule.dtype == DType::kFloat16) return detail::add_pairs<Float16>(arrived, own);
  }
  return detail::reduce_words({arrived, 0}, {own, 0}, rule, 1).hi;
}

/// Folds 16 bytes of packed elements: the same bits as two folds of 8 bytes, and one decision instead of two.
RINGBELL_HD RINGBELL_INLINE Quad reduce(Quad arrived, Quad own, ReduceRule rule) {
  if (detail::is_sum(rule)) {
    if (rule.dtype == DType::kFloat32) {
      return {detail::add_float32(arrived.lo, own.lo), detail::add_float32(arrived.hi, own.hi)};
    }
    if (rule.dtype == DType::kBFloat16) {
      return {detail::add_pairs<BFloat16>(arrived.lo, own.lo), detail::add_pairs<BFloat16>(arrived.hi, own.hi)};
    }
    if (rule.dtype == DType::kFloat16) {
      return {detail::add_pairs<Float16>(arrived.lo, own.lo), detail::add_pairs<Float16>(arrived.hi, own.hi)};
    }
  }
  return detail::reduce_words(arrived, own, rule, 2);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_REDUCE_HPP_
