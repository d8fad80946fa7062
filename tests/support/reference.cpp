// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// See reference.hpp. Elements are looked at one by one, as values; speed and bit tricks are left to device/math.
#include "tests/support/reference.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace ringbell::test {
namespace {

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

/// A binary float format as its paper describes it.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;
  std::uint64_t largest;  // code of the largest finite value
  std::uint64_t nan;      // the canonical one

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int lowest_exponent() const { return 1 - bias() - mantissa_bits; }  // of the smallest subnormal
};

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return {8, 23, true, false, 0x7f7fffff, 0x7fc00000};
    case DType::kFloat64: return {11, 52, true, false, 0x7fefffffffffffff, 0x7ff8000000000000};
    case DType::kFloat16: return {5, 10, true, false, 0x7bff, 0x7e00};
    case DType::kBFloat16: return {8, 7, true, false, 0x7f7f, 0x7fc0};
    case DType::kFloat8E4M3: return {4, 3, false, true, 0x7e, 0x7f};
    case DType::kFloat8E5M2: return {5, 2, true, true, 0x7b, 0x7f};
    default: throw std::invalid_argument("not a float type: " + std::to_string(static_cast<int>(dtype)));
  }
}

bool is_signed_integer(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

int element_bits(DType dtype) { return static_cast<int>(dtype_bytes(dtype)) * 8; }

std::uint64_t low_bits(std::uint64_t word, int bits) {
  return bits == 64 ? word : word & ((std::uint64_t{1} << bits) - 1);
}

double decode(std::uint64_t code, const FloatFormat& format) {
  const std::uint64_t magnitude = low_bits(code, format.bits() - 1);
  const bool negative = ((code >> (format.bits() - 1)) & 1U) != 0;
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const auto mantissa = static_cast<double>(low_bits(magnitude, format.mantissa_bits));
  double value = 0;
  if (magnitude > format.largest) {
    value = format.has_infinity && magnitude == format.largest + 1 ? std::numeric_limits<double>::infinity()
                                                                   : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, format.lowest_exponent());
  } else {
    value = std::ldexp(mantissa + std::ldexp(1.0, format.mantissa_bits), format.lowest_exponent() + exponent - 1);
  }
  return std::copysign(value, negative ? -1.0 : 1.0);
}

std::uint64_t encode(double value, const FloatFormat& format) {
  if (std::isnan(value)) return format.nan;
  const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (format.bits() - 1);
  const std::uint64_t overflow = format.saturates ? format.largest : format.largest + 1;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | overflow;
  const int exponent = std::max(std::ilogb(magnitude) - format.mantissa_bits, format.lowest_exponent());
  // Counted in units in the last place: adding that to the codes below this binade carries into the exponent by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, -exponent));
  const std::int64_t binade = exponent - format.lowest_exponent();
  const std::uint64_t code =
      (static_cast<std::uint64_t>(binade) << format.mantissa_bits) + static_cast<std::uint64_t>(units);
  return sign | (code > format.largest ? overflow : code);
}

template <class Float>
Float fold_floats(Float a, Float b, ReduceOp op, std::uint32_t divide_by) {
  if (op == ReduceOp::kProd) return a * b;
  const Float sum = a + b;
  return op == ReduceOp::kAvg && divide_by != 0 ? sum * (Float{1} / static_cast<Float>(divide_by)) : sum;
}

std::uint64_t smaller_or_larger(std::uint64_t a, std::uint64_t b, const FloatFormat& format, bool smaller) {
  const double x = decode(a, format);
  const double y = decode(b, format);
  if (std::isnan(x) || std::isnan(y)) return format.nan;
  const bool x_below = x < y || (x == y && std::signbit(x) && !std::signbit(y));
  return x_below == smaller ? a : b;
}

std::uint64_t fold_float_codes(std::uint64_t a, std::uint64_t b, DType dtype, ReduceOp op, std::uint32_t divide_by) {
  const FloatFormat format = float_format(dtype);
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) return smaller_or_larger(a, b, format, op == ReduceOp::kMin);
  if (dtype == DType::kFloat64) {
    const double folded = fold_floats(std::bit_cast<double>(a), std::bit_cast<double>(b), op, divide_by);
    return std::isnan(folded) ? format.nan : std::bit_cast<std::uint64_t>(folded);
  }
  const float folded =
      fold_floats(static_cast<float>(decode(a, format)), static_cast<float>(decode(b, format)), op, divide_by);
  return encode(static_cast<double>(folded), format);
}

Wide integer_value(std::uint64_t code, DType dtype) {
  const int bits = element_bits(dtype);
  const Wide value = static_cast<Wide>(low_bits(code, bits));
  const bool negative = is_signed_integer(dtype) && ((code >> (bits - 1)) & 1U) != 0;
  return negative ? value - (static_cast<Wide>(1) << bits) : value;
}

std::uint64_t fold_integer_codes(std::uint64_t a, std::uint64_t b, DType dtype, ReduceOp op, std::uint32_t divide_by) {
  const int bits = element_bits(dtype);
  const Wide x = integer_value(a, dtype);
  const Wide y = integer_value(b, dtype);
  const auto wrapped = [&](UnsignedWide value) { return low_bits(static_cast<std::uint64_t>(value), bits); };
  switch (op) {
    case ReduceOp::kProd: return wrapped(static_cast<UnsignedWide>(x) * static_cast<UnsignedWide>(y));
    case ReduceOp::kMin: return wrapped(static_cast<UnsignedWide>(std::min(x, y)));
    case ReduceOp::kMax: return wrapped(static_cast<UnsignedWide>(std::max(x, y)));
    default: break;
  }
  const std::uint64_t sum = wrapped(static_cast<UnsignedWide>(x + y));
  if (op == ReduceOp::kSum || divide_by == 0) return sum;
  return wrapped(static_cast<UnsignedWide>(integer_value(sum, dtype) / static_cast<Wide>(divide_by)));
}

std::uint64_t load(const void* data, std::uint64_t index, std::size_t bytes) {
  std::uint64_t element = 0;
  std::memcpy(&element, static_cast<const unsigned char*>(data) + index * bytes, bytes);
  return element;
}

void store(void* data, std::uint64_t index, std::size_t bytes, std::uint64_t element) {
  std::memcpy(static_cast<unsigned char*>(data) + index * bytes, &element, bytes);
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t exact_element(std::uint64_t random, DType dtype) {
  switch (dtype) {
    case DType::kFloat8E5M2: return encode(static_cast<double>(random % 3) - 1, float_format(dtype));
    case DType::kFloat8E4M3: return encode(static_cast<double>(random % 5) - 2, float_format(dtype));
    case DType::kBFloat16: return encode(static_cast<double>(random % 65) - 32, float_format(dtype));
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return encode(static_cast<double>(random % 511) - 255, float_format(dtype));
    default: return low_bits(random % 31 - (is_signed_integer(dtype) ? 15 : 0), element_bits(dtype));
  }
}

/// A value of a random sign and mantissa whose exponent is in the middle half of the format's, or now and then a
/// subnormal.
std::uint64_t mixed_element(std::uint64_t random, DType dtype) {
  if (!dtype_is_float(dtype)) return low_bits(random, element_bits(dtype));
  const FloatFormat format = float_format(dtype);
  const std::uint64_t sign_and_mantissa =
      low_bits(random, format.mantissa_bits) | ((random >> 63) << (format.bits() - 1));
  const std::uint64_t pick = mixed(random);
  if (pick % 61 == 0) return sign_and_mantissa;
  // Wide formats: 25 binades around 1. Narrow ones: half of what they have, and room above for a sum of 8.
  const int spread = std::min(25, 1 << (format.exponent_bits - 1));
  const auto exponent =
      static_cast<std::uint64_t>(format.bias() - spread / 2) + (pick >> 8) % static_cast<std::uint64_t>(spread);
  return sign_and_mantissa | (exponent << format.mantissa_bits);
}

std::uint64_t any_bits(std::uint64_t random, DType dtype, std::uint64_t call) {
  const int bits = element_bits(dtype);
  const std::uint64_t top = std::uint64_t{1} << (bits - 1);
  const std::array<std::uint64_t, 8> words{0, top, ~std::uint64_t{0}, call, call + 1, call + 2, top - 1, 1};
  const std::uint64_t pick = mixed(random);
  if (pick % 4 == 0) return low_bits(words[(pick >> 8) % words.size()], bits);
  if (pick % 4 == 1 && dtype_is_float(dtype)) {
    const FloatFormat format = float_format(dtype);
    const std::uint64_t above = format.largest + 1;  // infinity and NaN payloads, or what stands there
    const std::uint64_t sign = random & top;
    return (pick >> 8) % 4 == 0 ? sign | above : sign | above | low_bits(random, format.mantissa_bits);
  }
  return low_bits(random, bits);
}

}  // namespace

void fill_input(void* data, std::uint64_t count, DType dtype, int rank, std::uint64_t call, std::uint64_t seed,
                FillKind kind) {
  const std::size_t bytes = dtype_bytes(dtype);
  const std::uint64_t stream =
      mixed(mixed(mixed(seed + 0x9e3779b97f4a7c15U) + call) + static_cast<std::uint64_t>(rank));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t random = mixed(stream + i * 0x9e3779b97f4a7c15U);
    switch (kind) {
      case FillKind::kExact: store(data, i, bytes, exact_element(random, dtype)); break;
      case FillKind::kMixed: store(data, i, bytes, mixed_element(random, dtype)); break;
      case FillKind::kBits: store(data, i, bytes, any_bits(random, dtype, call)); break;
    }
  }
}

std::uint64_t fold_reference(std::uint64_t a, std::uint64_t b, DType dtype, ReduceOp op, std::uint32_t divide_by) {
  return dtype_is_float(dtype) ? fold_float_codes(a, b, dtype, op, divide_by)
                               : fold_integer_codes(a, b, dtype, op, divide_by);
}

void ring_reference(void* out, const std::vector<const void*>& inputs, std::uint64_t count, DType dtype, ReduceOp op,
                    const StartOf& start_of) {
  const std::size_t bytes = dtype_bytes(dtype);
  const std::size_t world = inputs.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto start = static_cast<std::size_t>(start_of(i));
    if (start >= world) throw std::out_of_range("start_of answered rank " + std::to_string(start));
    std::uint64_t folded = load(inputs[start], i, bytes);
    for (std::size_t step = 1; step < world; ++step) {
      const bool last = step + 1 == world;
      const std::uint32_t divide_by = last && op == ReduceOp::kAvg ? static_cast<std::uint32_t>(world) : 0;
      folded = fold_reference(folded, load(inputs[(start + step) % world], i, bytes), dtype, op, divide_by);
    }
    store(out, i, bytes, folded);
  }
}

void direct_reference(void* out, const std::vector<const void*>& inputs, std::uint64_t count, DType dtype,
                      ReduceOp op) {
  const std::size_t bytes = dtype_bytes(dtype);
  const bool narrow = dtype_is_float(dtype) && bytes <= 2 && op != ReduceOp::kMin && op != ReduceOp::kMax;
  if (!narrow || inputs.size() == 1)
    return ring_reference(out, inputs, count, dtype, op, [](std::uint64_t) { return 0; });
  const FloatFormat format = float_format(dtype);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto folded = static_cast<float>(decode(load(inputs[0], i, bytes), format));
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const auto value = static_cast<float>(decode(load(inputs[rank], i, bytes), format));
      folded = op == ReduceOp::kProd ? folded * value : folded + value;
    }
    if (op == ReduceOp::kAvg) folded *= 1.0f / static_cast<float>(inputs.size());
    store(out, i, bytes, encode(static_cast<double>(folded), format));
  }
}

double element_value(std::uint64_t bits, DType dtype) {
  return dtype_is_float(dtype) ? decode(bits, float_format(dtype)) : static_cast<double>(integer_value(bits, dtype));
}

std::uint64_t element_nearest(float value, DType dtype) {
  return encode(static_cast<double>(value), float_format(dtype));
}

double ring_error_bound(DType dtype, ReduceOp op, int world, double sum_of_magnitudes) {
  if (world < 2) return 0;
  const FloatFormat format = float_format(dtype);
  const double folding = std::ldexp(1.0, dtype == DType::kFloat64 ? -53 : -24);
  const double unit = std::ldexp(1.0, -format.mantissa_bits - 1) + (format.mantissa_bits < 23 ? folding : 0);
  const double subnormal = std::ldexp(0.5, format.lowest_exponent());
  const double growth = std::pow(1 + unit, world - 2);
  const double sum = (world - 1) * (unit * growth * sum_of_magnitudes + subnormal);
  if (op != ReduceOp::kAvg) return sum;
  return (sum + 2 * folding * growth * (1 + unit) * sum_of_magnitudes) / world + subnormal;
}

std::uint64_t count_outside_bound(const void* out, const std::vector<const void*>& inputs, std::uint64_t count,
                                  DType dtype, ReduceOp op) {
  if ((op != ReduceOp::kSum && op != ReduceOp::kAvg) || dtype == DType::kFloat64) {
    throw std::invalid_argument("count_outside_bound judges sums and averages of floats of up to 32 bits");
  }
  const std::size_t bytes = dtype_bytes(dtype);
  const FloatFormat format = float_format(dtype);
  const auto world = static_cast<int>(inputs.size());
  std::uint64_t outside = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    double exact = 0;
    double magnitudes = 0;
    for (const void* input : inputs) {
      const double value = decode(load(input, i, bytes), format);
      exact += value;
      magnitudes += std::fabs(value);
    }
    if (!(magnitudes <= decode(format.largest, format))) continue;
    if (op == ReduceOp::kAvg) exact /= world;
    const double error = std::fabs(decode(load(out, i, bytes), format) - exact);
    // The float64 sum is itself off by a little where exponents are far apart.
    if (!(error <= ring_error_bound(dtype, op, world, magnitudes) + std::ldexp(magnitudes, -49))) ++outside;
  }
  return outside;
}

std::string difference(const void* got, const void* expected, std::uint64_t count, DType dtype) {
  const std::size_t bytes = dtype_bytes(dtype);
  if (count == 0 || std::memcmp(got, expected, count * bytes) == 0) return "";
  std::uint64_t different = 0;
  std::ostringstream text;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t is = load(got, i, bytes);
    const std::uint64_t want = load(expected, i, bytes);
    if (is == want) continue;
    if (different++ == 0) {
      text << "element " << i << " is 0x" << std::hex << is << std::dec << " (" << element_value(is, dtype)
           << "), expected 0x" << std::hex << want << std::dec << " (" << element_value(want, dtype) << ")";
    }
  }
  text << "; " << different << " of " << count << " differ";
  return text.str();
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3U;
  std::uint64_t hash = 0xcbf29ce484222325U ^ bytes;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const unsigned char*>(data) + at, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  for (; at < bytes; ++at) hash = (hash ^ static_cast<const unsigned char*>(data)[at]) * kPrime;
  return mixed(hash);
}

}  // namespace ringbell::test
