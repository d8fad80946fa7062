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

/// By value and not as a constant object: nvcc would put that into memory and read it through the read-only cache.
RINGBELL_HD RINGBELL_INLINE ElementShape float_shape(std::uint32_t bits, std::uint64_t infinity, std::uint64_t nan) {
  ElementShape shape;
  shape.bits = bits;
  shape.is_signed = true;
  shape.is_float = true;
  shape.infinity = infinity;
  shape.nan = nan;
  return shape;
}
RINGBELL_HD RINGBELL_INLINE ElementShape integer_shape(std::uint32_t bits, bool is_signed) {
  ElementShape shape;
  shape.bits = bits;
  shape.is_signed = is_signed;
  shape.is_float = false;
  shape.infinity = 0;
  shape.nan = 0;
  return shape;
}

RINGBELL_HD RINGBELL_INLINE ElementShape element_shape(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return float_shape(32, kFloat32Infinity, kFloat32Nan);
    case DType::kFloat64: return float_shape(64, 0x7ff0000000000000, 0x7ff8000000000000);
    case DType::kFloat16: return float_shape(16, Float16::kInfinity, Float16::kNan);
    case DType::kBFloat16: return float_shape(16, BFloat16::kInfinity, BFloat16::kNan);
    case DType::kFloat8E4M3: return float_shape(8, Float8E4M3::kInfinity - 1, Float8E4M3::kNan);
    case DType::kFloat8E5M2: return float_shape(8, Float8E5M2::kInfinity, Float8E5M2::kNan);
    case DType::kInt8: return integer_shape(8, true);
    case DType::kUInt8: return integer_shape(8, false);
    case DType::kInt32: return integer_shape(32, true);
    case DType::kUInt32: return integer_shape(32, false);
    case DType::kInt64: return integer_shape(64, true);
    case DType::kUInt64: break;
  }
  return integer_shape(64, false);
}

// Min and max pick one operand's bits: no float format is ever unpacked. Elements are compared at the top of a 64-bit
// word.
RINGBELL_HD RINGBELL_INLINE std::uint64_t pick_word(std::uint64_t a, std::uint64_t b, const ElementShape& shape,
                                                    bool smaller) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const std::uint32_t spare = 64 - shape.bits;
  std::uint64_t picked = 0;
  RINGBELL_ROLLED
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
  RINGBELL_ROLLED
  for (std::uint32_t at = 0; at < 64; at += bits) product |= (((a >> at) * (b >> at)) & mask) << at;
  return product;
}

/// value / divisor by 16-bit digits, divisor < 2^16: a 64-bit division takes five times the GPU's registers.
RINGBELL_HD RINGBELL_INLINE std::uint64_t divide_by_small(std::uint64_t value, std::uint32_t divisor) {
  std::uint64_t quotient = 0;
  std::uint32_t remainder = 0;
  RINGBELL_ROLLED
  for (int at = 48; at >= 0; at -= 16) {
    const std::uint32_t part = remainder << 16 | (static_cast<std::uint32_t>(value >> at) & 0xffffU);
    const std::uint32_t digit = part / divisor;
    remainder = part - digit * divisor;
    quotient = quotient << 16 | digit;
  }
  return quotient;
}

/// Each element divided by `divisor`, toward zero. Magnitudes are divided, so that the most negative value is no case.
RINGBELL_HD RINGBELL_INLINE std::uint64_t divide_integers(std::uint64_t sum, std::uint32_t divisor,
                                                          const ElementShape& shape) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - shape.bits);
  std::uint64_t quotient = 0;
  RINGBELL_ROLLED
  for (std::uint32_t at = 0; at < 64; at += shape.bits) {
    const std::uint64_t element = (sum >> at) & mask;
    const bool negative = shape.is_signed && ((element >> (shape.bits - 1)) & 1U) != 0;
    const std::uint64_t magnitude = negative ? (0 - element) & mask : element;
    const std::uint64_t divided = divide_by_small(magnitude, divisor);
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
  RINGBELL_ROLLED
  for (int at = 0; at < 64; at += Format::kBits) {
    const float x = Format::to_float(static_cast<std::uint32_t>((a >> at) & kMask));
    const float y = Format::to_float(static_cast<std::uint32_t>((b >> at) & kMask));
    const float element = fold_floats(x, y, product, scale);
    folded |= std::uint64_t{Format::from_float(element)} << at;
  }
  return folded;
}

/// A rule in one register.
RINGBELL_HD constexpr std::uint32_t pack_rule(ReduceRule rule) {
  return static_cast<std::uint32_t>(rule.dtype) | static_cast<std::uint32_t>(rule.op) << 8 | rule.divide_by << 16;
}

/// Everything but the fast paths, out of line so that a caller keeps the registers of a call and not of twelve types.
RINGBELL_HD inline __attribute__((noinline)) std::uint64_t reduce_word(std::uint64_t a, std::uint64_t b,
                                                                       std::uint32_t rule) {
  const auto dtype = static_cast<DType>(rule & 0xffU);
  const auto op = static_cast<ReduceOp>(rule >> 8 & 0xffU);
  const std::uint32_t divide_by = op == ReduceOp::kAvg ? rule >> 16 : 0;
  const bool product = op == ReduceOp::kProd;
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    return pick_word(a, b, element_shape(dtype), op == ReduceOp::kMin);
  }
  if (static_cast<std::uint8_t>(dtype) > static_cast<std::uint8_t>(DType::kFloat8E5M2)) {
    const ElementShape shape = element_shape(dtype);
    if (product) return multiply_integers(a, b, shape.bits);
    const std::uint64_t sum = add_integers(a, b, shape.bits);
    return divide_by != 0 ? divide_integers(sum, divide_by, shape) : sum;
  }
  if (dtype == DType::kFloat64) {
    return fold_float64(a, b, product, divide_by != 0 ? reciprocal_rounded(static_cast<double>(divide_by)) : 1.0);
  }
  const float scale = divide_by != 0 ? reciprocal_rounded(static_cast<float>(divide_by)) : 1.0F;
  switch (dtype) {
    case DType::kFloat32:
      return each_float32(a, b, [&](float x, float y) { return fold_floats(x, y, product, scale); });
    case DType::kFloat16: return fold_narrow<Float16>(a, b, product, scale);
    case DType::kBFloat16: return fold_narrow<BFloat16>(a, b, product, scale);
    case DType::kFloat8E4M3: return fold_narrow<Float8E4M3>(a, b, product, scale);
    default: return fold_narrow<Float8E5M2>(a, b, product, scale);
  }
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

/// The sums that are inlined: those of the types that models are served in.
RINGBELL_HD RINGBELL_INLINE constexpr bool is_inlined_sum(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}
RINGBELL_HD RINGBELL_INLINE std::uint64_t add_inlined(std::uint64_t a, std::uint64_t b, DType dtype) {
  return dtype == DType::kFloat32    ? detail::add_float32(a, b)
         : dtype == DType::kBFloat16 ? detail::add_pairs<BFloat16>(a, b)
                                     : detail::add_pairs<Float16>(a, b);
}
RINGBELL_HD RINGBELL_INLINE Quad add_inlined(Quad a, Quad b, DType dtype) {
  if (dtype == DType::kFloat32) return {detail::add_float32(a.lo, b.lo), detail::add_float32(a.hi, b.hi)};
  if (dtype == DType::kBFloat16) {
    return {detail::add_pairs<BFloat16>(a.lo, b.lo), detail::add_pairs<BFloat16>(a.hi, b.hi)};
  }
  return {detail::add_pairs<Float16>(a.lo, b.lo), detail::add_pairs<Float16>(a.hi, b.hi)};
}

/// Folds 8 bytes of packed elements (little endian). The operands may be given in either order: the bits are the same.
RINGBELL_HD RINGBELL_INLINE std::uint64_t reduce(std::uint64_t arrived, std::uint64_t own, ReduceRule rule) {
  if (detail::is_sum(rule) && is_inlined_sum(rule.dtype)) return add_inlined(arrived, own, rule.dtype);
  return detail::reduce_word(arrived, own, detail::pack_rule(rule));
}

/// Folds 16 bytes of packed elements: the same bits as two folds of 8 bytes, and one decision instead of two.
RINGBELL_HD RINGBELL_INLINE Quad reduce(Quad arrived, Quad own, ReduceRule rule) {
  if (detail::is_sum(rule) && is_inlined_sum(rule.dtype)) return add_inlined(arrived, own, rule.dtype);
  const std::uint32_t packed = detail::pack_rule(rule);
  return {detail::reduce_word(arrived.lo, own.lo, packed), detail::reduce_word(arrived.hi, own.hi, packed)};
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_REDUCE_HPP_
