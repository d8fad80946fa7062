// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// User data of the explorer: elements at any address of the model's memory, and what they hold. Any bits are data;
// every other element is a small number, as flags are.
#ifndef RINGBELL_TESTS_SUPPORT_SCHED_VALUES_HPP_
#define RINGBELL_TESTS_SUPPORT_SCHED_VALUES_HPP_

#include <bit>
#include <cstdio>
#include <string>

#include "tests/support/ops_sched.hpp"

namespace ringbell::test {

inline constexpr std::size_t kUserBytes = 1024;  // the largest message of a call, with guards
inline constexpr std::size_t kGuard = 16;
inline constexpr std::uint64_t kPoison = 0xeeeeeeeeeeeeeeee;

inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9ull;
  return value ^ value >> 32;
}

/// What rank `r` gives to call `index`. @param flag a wire flag of about then
inline std::uint64_t element_of(std::uint64_t seed, unsigned r, std::size_t index, std::uint64_t i,
                                std::uint64_t flag) {
  const std::uint64_t value = mix(seed * 977 + index * 131 + r * 17 + i + 1);
  const std::uint64_t small = flag + 1 + value % 4;
  return i % 2 == 0 ? value : small << 32 | small;
}

/// What of a value an element of `dtype` holds: all of it, or a small whole number as a float32.
inline std::uint64_t element_as(DType dtype, std::uint64_t value) {
  return dtype == DType::kFloat32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value % 4096)) : value;
}
inline std::uint64_t add_elements(DType dtype, std::uint64_t a, std::uint64_t b) {
  if (dtype != DType::kFloat32) return a + b;
  const auto value = [](std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); };
  return std::bit_cast<std::uint32_t>(value(a) + value(b));
}

inline std::uint64_t cut(std::uint64_t value, std::size_t bytes) {
  return bytes == 8 ? value : value & ((std::uint64_t{1} << 8 * bytes) - 1);
}

// Elements may miss their alignment: then byte by byte, as an application's memcpy would.
inline std::uint64_t load_element(const std::byte* at, std::size_t bytes) {
  using Host = SchedOps<>;
  if (reinterpret_cast<std::uintptr_t>(at) % bytes == 0) {
    return bytes == 8 ? Host::load_user_u64(at) : bytes == 4 ? Host::load_user_u32(at) : Host::load_user_u8(at);
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{Host::load_user_u8(at + i)} << 8 * i;
  return value;
}

inline void store_element(std::byte* at, std::size_t bytes, std::uint64_t value) {
  using Host = SchedOps<>;
  const bool whole = reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
  if (whole && bytes == 8) return Host::store_user_u64(at, value);
  if (whole && bytes == 4) return Host::store_user_u32(at, static_cast<std::uint32_t>(value));
  for (std::size_t i = 0; i < bytes; ++i) Host::store_user_u8(at + i, static_cast<std::uint8_t>(value >> 8 * i));
}

inline std::string text(const char* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_SCHED_VALUES_HPP_
