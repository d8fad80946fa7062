// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The LL line: 16 bytes = 2 x {4 bytes data, 4 bytes flag}. A word of 8 bytes is valid by itself when its flag matches,
// so that nothing but 8-byte atomicity is needed (idea: NCCL's LL protocol).
#ifndef RINGBELL_DEVICE_LAYOUT_LL_LINE_HPP_
#define RINGBELL_DEVICE_LAYOUT_LL_LINE_HPP_

#include "device/config.hpp"

namespace ringbell::device {

inline constexpr std::size_t kLlPayloadBytes = 8;

/// memory: receiver's window. writer: the one source rank of its region. reader: owner. zero: never a valid flag.
struct alignas(16) LlLine {
  std::uint64_t word[2];  // low half data, high half flag
};
static_assert(sizeof(LlLine) == 16);

struct LlWords {
  std::uint64_t word[2];
};

RINGBELL_HD constexpr LlWords ll_pack(std::uint64_t payload, std::uint32_t flag) {
  const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
  return {{(payload & 0xffffffffu) | high, (payload >> 32) | high}};
}

RINGBELL_HD constexpr std::uint64_t ll_payload(LlWords words) {
  return (words.word[0] & 0xffffffffu) | (words.word[1] << 32);
}

RINGBELL_HD constexpr bool ll_word_ready(std::uint64_t word, std::uint32_t flag) {
  return static_cast<std::uint32_t>(word >> 32) == flag;
}

/// value mod (2^32 - 1) without a division: 2^32 leaves 1, so the halves are added.
RINGBELL_HD constexpr std::uint64_t mod_flags(std::uint64_t value) {
  value = (value >> 32) + (value & 0xffffffffu);
  value = (value >> 32) + (value & 0xffffffffu);
  return value == 0xffffffffu ? 0 : value;
}
static_assert(mod_flags(0) == 0 && mod_flags(0xffffffffull) == 0 && mod_flags(0x1fffffffeull) == 0);
static_assert(mod_flags(~0ull) == ~0ull % 0xffffffffull &&
              mod_flags(0x123456789abcdefull) == 0x123456789abcdefull % 0xffffffffull);

/// Flag of an epoch: 1 .. 2^32 - 1, never 0, so that zeroed memory is "not arrived". Compared for equality.
RINGBELL_HD constexpr std::uint32_t ll_flag(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(1 + mod_flags(epoch));
}

/// True for the last `slots` epochs before the flag wraps: the owner zeroes what it consumed there, so that no line
/// written 2^32 - 1 epochs ago can match again.
RINGBELL_HD constexpr bool ll_must_clean(std::uint64_t epoch, std::uint64_t slots) {
  return mod_flags(epoch) >= 0xffffffffull - slots;
}

static_assert(ll_flag(0) == 1 && ll_flag(0xfffffffeull) == 0xffffffffu && ll_flag(0xffffffffull) == 1);
static_assert(ll_must_clean(0xfffffffeull, 8) && !ll_must_clean(0xffffffffull, 8) && !ll_must_clean(0xfffffff6ull, 8));
static_assert(ll_payload(ll_pack(0x0123456789abcdefull, 7)) == 0x0123456789abcdefull);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_LAYOUT_LL_LINE_HPP_
