// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What perf puts into the buffers and what must come out: every element a function of (seed, call, rank, index), so
// that each rank knows all inputs. Float inputs are chosen such that every partial result is exact whatever the order;
// so all results are compared bit for bit, and the rounding per hop never shows. Shares no code with device/math, which
// is what it checks. Runs on both executors.
#ifndef RINGBELL_TOOLS_PERF_VALUES_HPP_
#define RINGBELL_TOOLS_PERF_VALUES_HPP_

#include <cstdint>

#include "device/config.hpp"
#include "device/ringbell_types.hpp"

namespace ringbell::tools {

/// Trivially copyable: goes to kernels by value.
struct ValueRule {
  std::uint64_t key = 0;    ///< of seed and call
  std::uint64_t limit = 0;  ///< floats: inputs are whole numbers in [-limit, limit)
  std::uint32_t ranks = 1;
  std::uint32_t bits = 32;          ///< of an element
  std::uint32_t exponent_bits = 0;  ///< 0: an integer
  std::uint32_t mantissa_bits = 0;
  bool is_signed = true;
  ReduceOp op = ReduceOp::kSum;
};

RINGBELL_HD inline std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

inline ValueRule value_rule(DType dtype, ReduceOp op, int ranks, std::uint64_t seed, std::uint64_t call) {
  ValueRule rule;
  rule.key = mix_bits(mix_bits(seed) + call);
  rule.ranks = static_cast<std::uint32_t>(ranks);
  rule.bits = static_cast<std::uint32_t>(dtype_bytes(dtype)) * 8;
  rule.op = op;
  // 8 x limit is the largest sum; up to 2^(mantissa bits + 1) every whole number is exact.
  const auto floats = [&](std::uint32_t exponent, std::uint32_t mantissa) {
    rule.exponent_bits = exponent;
    rule.mantissa_bits = mantissa;
    rule.limit = std::uint64_t{1} << (mantissa + 1 - 3);
  };
  switch (dtype) {
    case DType::kFloat32: floats(8, 23); break;
    case DType::kFloat64: floats(11, 52); break;
    case DType::kFloat16: floats(5, 10); break;
    case DType::kBFloat16: floats(8, 7); break;
    case DType::kFloat8E4M3: floats(4, 3); break;
    case DType::kFloat8E5M2: floats(5, 2); break;
    case DType::kUInt8:
    case DType::kUInt32:
    case DType::kUInt64: rule.is_signed = false; break;
    default: break;
  }
  return rule;
}

namespace detail {

RINGBELL_HD inline std::uint64_t element_mask(const ValueRule& rule) { return ~std::uint64_t{0} >> (64 - rule.bits); }

/// The element's value as a 64-bit integer: sign- or zero-extended.
RINGBELL_HD inline std::uint64_t extended(const ValueRule& rule, std::uint64_t code) {
  const std::uint64_t sign = std::uint64_t{1} << (rule.bits - 1);
  return rule.is_signed ? (code ^ sign) - sign : code;
}

/// Random bits of one rank's element. `common` is the element's own, mixed once for all ranks.
RINGBELL_HD inline std::uint64_t rank_bits(std::uint64_t common, std::uint32_t rank) {
  const std::uint64_t x = (common ^ (rank * 0x9e3779b97f4a7c15U)) * 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}

RINGBELL_HD inline std::int64_t whole_number(const ValueRule& rule, std::uint64_t random) {
  return static_cast<std::int64_t>((random >> 8) & (2 * rule.limit - 1)) - static_cast<std::int64_t>(rule.limit);
}

/// Products: plus or minus 1/2, 1 or 2. The exponent, and the sign in the top bit.
RINGBELL_HD inline std::int32_t power_of_two(std::uint64_t random) {
  return static_cast<std::int32_t>((random >> 40) % 3) - 1;
}

/// (-1)^negative x magnitude x 2^exponent rounded to the element's format, ties to even. No overflow by construction.
RINGBELL_HD inline std::uint64_t encode_float(const ValueRule& rule, bool negative, std::uint64_t magnitude,
                                              std::int32_t exponent) {
  const std::uint64_t sign = negative ? std::uint64_t{1} << (rule.bits - 1) : 0;
  if (magnitude == 0) return sign;
  std::int32_t top = 0;  // position of the highest bit
  for (std::uint64_t rest = magnitude; (rest >>= 1) != 0;) ++top;
  const auto mantissa_bits = static_cast<std::int32_t>(rule.mantissa_bits);
  const std::int32_t bias = (1 << (rule.exponent_bits - 1)) - 1;
  std::int32_t biased = top + exponent + bias;
  std::int32_t drop = top - mantissa_bits;  // bits below the format's last place
  if (biased < 1) {                         // subnormal
    drop += 1 - biased;
    biased = 1;
  }
  std::uint64_t kept = magnitude;
  if (drop > 0) {
    kept = magnitude >> drop;
    const std::uint64_t rest = magnitude - (kept << drop);
    const std::uint64_t half = std::uint64_t{1} << (drop - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  } else {
    kept = magnitude << -drop;
  }
  // `kept` has the hidden bit of a normal number, which is what adds 1 to the exponent field.
  return sign | ((static_cast<std::uint64_t>(biased - 1) << mantissa_bits) + kept);
}

/// sum / ranks as documented: times 1/ranks in float32 (float64: in float64), rounded there, then to the element's
/// format.
RINGBELL_HD inline std::uint64_t encode_average(const ValueRule& rule, std::int64_t sum) {
  const bool negative = sum < 0;
  const std::uint64_t magnitude = negative ? 0 - static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  if (magnitude == 0) return 0;
  if (rule.bits == 64) {
    const double average = static_cast<double>(magnitude) * (1.0 / static_cast<double>(rule.ranks));
    return __builtin_bit_cast(std::uint64_t, average) | (negative ? std::uint64_t{1} << 63 : 0);
  }
  const float average = static_cast<float>(magnitude) * (1.0F / static_cast<float>(rule.ranks));
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, average);
  return encode_float(rule, negative, (bits & 0x7fffffU) | 0x800000U, static_cast<std::int32_t>(bits >> 23) - 150);
}

RINGBELL_HD inline std::uint64_t float_input(const ValueRule& rule, std::uint64_t random) {
  if (rule.op == ReduceOp::kProd) return encode_float(rule, (random >> 63) != 0, 1, power_of_two(random));
  const std::int64_t value = whole_number(rule, random);
  return encode_float(rule, value < 0, static_cast<std::uint64_t>(value < 0 ? -value : value), 0);
}

RINGBELL_HD inline std::uint64_t float_expected(const ValueRule& rule, std::uint64_t common) {
  if (rule.op == ReduceOp::kProd) {
    std::uint64_t negative = 0;
    std::int32_t exponent = 0;
    for (std::uint32_t rank = 0; rank < rule.ranks; ++rank) {
      const std::uint64_t random = rank_bits(common, rank);
      negative ^= random >> 63;
      exponent += power_of_two(random);
    }
    return encode_float(rule, negative != 0, 1, exponent);
  }
  std::int64_t folded = whole_number(rule, rank_bits(common, 0));
  for (std::uint32_t rank = 1; rank < rule.ranks; ++rank) {
    const std::int64_t value = whole_number(rule, rank_bits(common, rank));
    if (rule.op == ReduceOp::kMin) {
      folded = value < folded ? value : folded;
    } else if (rule.op == ReduceOp::kMax) {
      folded = value > folded ? value : folded;
    } else {
      folded += value;
    }
  }
  if (rule.op == ReduceOp::kAvg) return encode_average(rule, folded);
  return encode_float(rule, folded < 0, static_cast<std::uint64_t>(folded < 0 ? -folded : folded), 0);
}

/// Odd for products: even ones would soon leave nothing but zeros.
RINGBELL_HD inline std::uint64_t integer_input(const ValueRule& rule, std::uint64_t random) {
  return (random | (rule.op == ReduceOp::kProd ? 1 : 0)) & element_mask(rule);
}

RINGBELL_HD inline std::uint64_t integer_expected(const ValueRule& rule, std::uint64_t common) {
  std::uint64_t folded = integer_input(rule, rank_bits(common, 0));
  for (std::uint32_t rank = 1; rank < rule.ranks; ++rank) {
    const std::uint64_t value = integer_input(rule, rank_bits(common, rank));
    if (rule.op == ReduceOp::kProd) {
      folded *= value;
    } else if (rule.op == ReduceOp::kMin || rule.op == ReduceOp::kMax) {
      const std::uint64_t a = extended(rule, folded);
      const std::uint64_t b = extended(rule, value);
      const bool below = rule.is_signed ? static_cast<std::int64_t>(b) < static_cast<std::int64_t>(a) : b < a;
      if (below == (rule.op == ReduceOp::kMin)) folded = value;
    } else {
      folded += value;
    }
  }
  folded &= element_mask(rule);
  if (rule.op != ReduceOp::kAvg) return folded;
  const std::uint64_t sum = extended(rule, folded);
  const bool negative = rule.is_signed && static_cast<std::int64_t>(sum) < 0;
  const std::uint64_t quotient = (negative ? 0 - sum : sum) / rule.ranks;
  return (negative ? 0 - quotient : quotient) & element_mask(rule);
}

RINGBELL_HD inline std::uint64_t common_bits(const ValueRule& rule, std::uint64_t index) {
  return mix_bits(rule.key + index * 0x9e3779b97f4a7c15U);
}

}  // namespace detail

/// Element `index` of `rank`'s input, in the low bits.
RINGBELL_HD inline std::uint64_t input_element(const ValueRule& rule, std::uint32_t rank, std::uint64_t index) {
  const std::uint64_t random = detail::rank_bits(detail::common_bits(rule, index), rank);
  return rule.exponent_bits != 0 ? detail::float_input(rule, random) : detail::integer_input(rule, random);
}

/// Element `index` of the result, in the low bits.
RINGBELL_HD inline std::uint64_t expected_element(const ValueRule& rule, std::uint64_t index) {
  const std::uint64_t common = detail::common_bits(rule, index);
  return rule.exponent_bits != 0 ? detail::float_expected(rule, common) : detail::integer_expected(rule, common);
}

/// What outputs hold before a call: NaN in every float format; for integers another byte each call, since any byte is
/// right now and then.
inline int poison_byte(const ValueRule& rule) {
  return rule.exponent_bits != 0 ? 0xff : static_cast<int>(rule.key & 0xff);
}

/// The same on every machine and executor.
inline std::uint64_t hash_output(const void* data, std::uint64_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3U;
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = 0xcbf29ce484222325U;
  std::uint64_t left = bytes;
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, at, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  for (; left > 0; --left, ++at) hash = (hash ^ *at) * kPrime;
  return mix_bits(hash ^ bytes);
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_VALUES_HPP_
