// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The LL128 line: 128 bytes = 120 bytes data, 8 bytes flag (idea: NCCL's LL128 protocol). Eight lanes move 16 bytes
// each.
#ifndef RINGBELL_DEVICE_LAYOUT_LL128_LINE_HPP_
#define RINGBELL_DEVICE_LAYOUT_LL128_LINE_HPP_

#include "device/config.hpp"

namespace ringbell::device {

inline constexpr std::size_t kLl128LineBytes = 128;
inline constexpr std::size_t kLl128PayloadBytes = 120;
inline constexpr unsigned kLl128Quads = 8;

/// memory: receiver's window. writer: the one source rank of its region. reader: owner. zero: never a valid flag.
struct alignas(128) Ll128Line {
  Quad quad[kLl128Quads];  // quad[7].hi is the flag: 1 + epoch, all 64 bits
};
static_assert(sizeof(Ll128Line) == kLl128LineBytes);

RINGBELL_HD constexpr std::uint64_t ll128_flag(std::uint64_t epoch) { return epoch + 1; }

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_LAYOUT_LL128_LINE_HPP_
