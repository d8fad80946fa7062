// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Where things lie in a rank's window: the memory that its peers write. Pure arithmetic, the same on every rank. A
// region belongs to one wire format: a byte that is a flag in one format is never payload in another. One writer a
// line.
#ifndef RINGBELL_DEVICE_LAYOUT_WINDOW_HPP_
#define RINGBELL_DEVICE_LAYOUT_WINDOW_HPP_

#include "device/config.hpp"
#include "device/layout/ll128_line.hpp"
#include "device/layout/ll_line.hpp"
#include "device/ringbell_types.hpp"

namespace ringbell::device {

/// memory: the sender's window. writer: the receiver (next rank). reader: the sender. Slots freed so far; free-running.
struct alignas(kCacheLineBytes) CreditLine {
  std::uint64_t consumed;
};
/// memory: the receiver's window. writer: the sender (previous rank). reader: the receiver. Slots filled so far.
struct alignas(kCacheLineBytes) TailLine {
  std::uint64_t filled;
};
/// memory: the victim's window. writer: one way of the one source rank of the line. reader: the owner. zero: nobody
/// aborted.
struct alignas(kCacheLineBytes) AbortLine {
  std::uint64_t code;  // written last (edge kAbort); see AbortCode
  std::uint64_t seq;
  std::uint64_t mine;     // what the writer had (a count), for the text
  std::uint64_t theirs;   // what `peer` had
  std::uint64_t my_call;  // the packed dtype, operation, algorithm, protocol of both
  std::uint64_t peer_call;
  std::uint64_t peer_seq;  // kMismatch: the number of the peer's call
};
/// memory: the receiver's window. writer: the one source rank. reader: the owner. 16 x {4 bytes data, 4 bytes flag}.
struct alignas(kCacheLineBytes) HeaderLine {
  std::uint64_t word[16];
};
static_assert(sizeof(CreditLine) == kCacheLineBytes && sizeof(TailLine) == kCacheLineBytes);
static_assert(sizeof(AbortLine) == kCacheLineBytes && sizeof(HeaderLine) == kCacheLineBytes);

inline constexpr unsigned kWireFormats = 3;  // LL, LL128, Simple

/// 0, 1, 2 for LL, LL128, Simple: index of per-format state.
RINGBELL_HD constexpr unsigned wire_index(Protocol protocol) { return static_cast<unsigned>(protocol) - 1; }

// Having received from every peer in epoch e proves that all have left e - 1: two sets are enough, and no credits.
inline constexpr unsigned kDirectSets = 2;

struct WindowLayout {
  std::uint32_t slot_bytes;  // payload bytes a slot holds; multiple of 240 (whole LL128 lines, whole quads)
  std::uint32_t slots;       // slots per connection and format; power of two
  std::uint32_t channels;
  std::uint32_t direct_slot_bytes;  // payload bytes of a slot of the direct algorithms; as slot_bytes
  std::uint32_t ranks;              // sources that have one

  // The fixed part.
  // A rank's worker and its launched calls may give up at the same time: a line for each.
  RINGBELL_HD static constexpr std::uint64_t abort_offset(unsigned source, unsigned writer_way) {
    return (source * kWays + writer_way) * sizeof(AbortLine);
  }
  RINGBELL_HD static constexpr std::uint64_t header_offset(unsigned source, std::uint64_t parity) {
    return kMaxRanks * kWays * sizeof(AbortLine) + (source * 2 + (parity & 1)) * sizeof(HeaderLine);
  }
  RINGBELL_HD constexpr std::uint64_t credit_offset(unsigned channel, unsigned wire) const {
    return header_offset(kMaxRanks, 0) + (std::uint64_t{channel} * kWireFormats + wire) * sizeof(CreditLine);
  }
  RINGBELL_HD constexpr std::uint64_t tail_offset(unsigned channel) const {
    return credit_offset(channels, 0) + channel * sizeof(TailLine);
  }
  RINGBELL_HD constexpr std::uint64_t direct_tail_offset(unsigned source) const {
    return tail_offset(channels) + source * sizeof(TailLine);
  }
  // The slots, one region per format.
  RINGBELL_HD constexpr std::uint64_t ll_slot_bytes() const { return std::uint64_t{slot_bytes} * 2; }
  RINGBELL_HD constexpr std::uint64_t ll128_slot_bytes() const {
    return std::uint64_t{slot_bytes} / kLl128PayloadBytes * kLl128LineBytes;
  }
  RINGBELL_HD constexpr std::uint64_t slots_begin() const {
    return (direct_tail_offset(kMaxRanks) + 4095) / 4096 * 4096;
  }
  RINGBELL_HD constexpr std::uint64_t ll_slot(unsigned channel, std::uint64_t epoch) const {
    return slots_begin() + (std::uint64_t{channel} * slots + (epoch & (slots - 1))) * ll_slot_bytes();
  }
  RINGBELL_HD constexpr std::uint64_t ll128_slot(unsigned channel, std::uint64_t epoch) const {
    return ll_slot(channels, 0) + (std::uint64_t{channel} * slots + (epoch & (slots - 1))) * ll128_slot_bytes();
  }
  RINGBELL_HD constexpr std::uint64_t simple_slot(unsigned channel, std::uint64_t epoch) const {
    return ll128_slot(channels, 0) + (std::uint64_t{channel} * slots + (epoch & (slots - 1))) * slot_bytes;
  }
  RINGBELL_HD constexpr std::uint64_t slot(unsigned wire, unsigned channel, std::uint64_t epoch) const {
    return wire == 0 ? ll_slot(channel, epoch) : wire == 1 ? ll128_slot(channel, epoch) : simple_slot(channel, epoch);
  }
  // The slots of the direct algorithms: for each format two sets of a slot from each source.
  RINGBELL_HD constexpr std::uint64_t direct_slot(unsigned wire, unsigned set, unsigned source) const {
    std::uint64_t begin = (simple_slot(channels, 0) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    for (unsigned before = 0; before < wire; ++before) begin += kDirectSets * direct_set_bytes(before);
    return begin + set * direct_set_bytes(wire) + source * direct_slot_bytes_of(wire);
  }
  RINGBELL_HD constexpr std::uint64_t direct_slot_bytes_of(unsigned wire) const {
    return wire == 0   ? std::uint64_t{direct_slot_bytes} * 2
           : wire == 1 ? std::uint64_t{direct_slot_bytes} / kLl128PayloadBytes * kLl128LineBytes
                       : direct_slot_bytes;
  }
  RINGBELL_HD constexpr std::uint64_t direct_set_bytes(unsigned wire) const {
    return (ranks * direct_slot_bytes_of(wire) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  }
  RINGBELL_HD constexpr std::uint64_t total_bytes() const { return direct_slot(kWireFormats, 0, 0); }
  // A window holds a whole region for each way, one behind the other.
  RINGBELL_HD constexpr std::uint64_t way_bytes() const {
    return (total_bytes() + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  RINGBELL_HD constexpr std::uint64_t window_bytes() const { return kWays * way_bytes(); }
};

inline constexpr std::uint32_t kSlotGranuleBytes = 1920;  // 16 LL128 lines: slots of every format stay line-aligned
inline constexpr std::uint32_t kDefaultSlotBytes = 61440;
inline constexpr std::uint32_t kDefaultSlots = 8;

/// Slots of the direct algorithms take the same memory in every world: that of two slots of the ring for each set.
RINGBELL_HD constexpr std::uint32_t direct_slot_bytes(std::uint32_t slot_bytes, std::uint32_t ranks) {
  const std::uint32_t share = 2 * slot_bytes / (ranks < 2 ? 2 : ranks) / kSlotGranuleBytes * kSlotGranuleBytes;
  return share < kSlotGranuleBytes ? kSlotGranuleBytes : share;
}
RINGBELL_HD constexpr WindowLayout window_layout(std::uint32_t slot_bytes, std::uint32_t slots, std::uint32_t ranks) {
  return {slot_bytes, slots, 1, direct_slot_bytes(slot_bytes, ranks), ranks};
}
static_assert(kSlotGranuleBytes % 240 == 0 && kSlotGranuleBytes % kCacheLineBytes == 0);
static_assert(window_layout(kDefaultSlotBytes, kDefaultSlots, 8).total_bytes() < (3u << 20) + (128u << 10));
static_assert(window_layout(1920, 8, 3).ll128_slot(0, 0) % kCacheLineBytes == 0);
static_assert(window_layout(1920, 8, 3).simple_slot(0, 1) % kCacheLineBytes == 0);
static_assert(window_layout(1920, 8, 3).direct_slot(1, 1, 2) % kCacheLineBytes == 0);
static_assert(window_layout(1920, 8, 3).direct_slot(2, 1, 1) % kCacheLineBytes == 0);
static_assert(direct_slot_bytes(61440, 2) == 61440 && direct_slot_bytes(61440, 8) == 15360);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_LAYOUT_WINDOW_HPP_
