// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The control block of a rank: host memory that its host and its worker share (mapped into the GPU on CUDA). Queue and
// completion lines follow it. One writer per line.
#ifndef RINGBELL_DEVICE_LAYOUT_CONTROL_HPP_
#define RINGBELL_DEVICE_LAYOUT_CONTROL_HPP_

#include "device/config.hpp"
#include "device/layout/command.hpp"

namespace ringbell::device {

enum class Residency : std::uint8_t {
  kParked = 0,   // zeroed memory: generation 0 is parked, nothing was ever launched
  kRunning = 1,  // polls the queue or runs an operation
  kParking = 2,  // about to leave; resolves within microseconds
  kBroken = 3,   // left after a failed operation or an abort; never runs again
};
enum class ParkReason : std::uint8_t {
  kNone = 0,
  kIdle = 1,
  kLease = 2,
  kPeerLease = 3,
  kRequest = 4,
  kBurstEnd = 5,
  kExit = 6
};
inline constexpr int kParkReasonCount = 7;

/// The worker's state in one word: generation << 16 | reason << 8 | residency.
RINGBELL_HD constexpr std::uint64_t state_word(std::uint64_t generation, Residency residency, ParkReason reason) {
  return generation << 16 | static_cast<std::uint64_t>(reason) << 8 | static_cast<std::uint64_t>(residency);
}
RINGBELL_HD constexpr Residency state_residency(std::uint64_t word) { return static_cast<Residency>(word & 0xff); }
RINGBELL_HD constexpr ParkReason state_reason(std::uint64_t word) { return static_cast<ParkReason>(word >> 8 & 0xff); }
RINGBELL_HD constexpr std::uint64_t state_generation(std::uint64_t word) { return word >> 16; }

/// memory: control block. writer: worker. reader: its host, `why`, `top`.
struct alignas(kCacheLineBytes) StateLine {
  std::uint64_t state;  // state_word
  std::uint64_t beat;   // worker clock (ns) at its last look around while idle
};

// Bits of HostControlLine::request.
inline constexpr std::uint64_t kRequestPark = 1;
inline constexpr std::uint64_t kRequestHold = 2;  // no lease, no idle park
inline constexpr std::uint64_t kRequestExit = 4;

/// memory: control block. writer: host. reader: worker, a few times per idle period and in long waits.
struct alignas(kCacheLineBytes) HostControlLine {
  std::uint64_t request;
  std::uint64_t abort_code;  // AbortCode word; 0 = none (edge kAbort)
};

enum class WaitFor : std::uint8_t { kNothing = 0, kLine = 1, kTail = 2, kCredit = 3, kHeader = 4, kTurn = 5 };

/// What a wait is about. memory: control block. writer: worker; written once a wait has lasted 1 ms, and for a failure.
struct alignas(kCacheLineBytes) WaitRecord {
  std::uint64_t seq;
  std::uint64_t expected;  // kMismatch: the numbers of the two ranks' calls
  std::uint64_t seen;
  std::uint64_t since_ns;  // worker clock
  std::uint32_t step;
  std::uint8_t peer;
  WaitFor what;
  Status status;  // kOk while it is only slow
  std::uint8_t reporter;
  std::uint64_t mine;  // kMismatch: packed header fields of the two ranks
  std::uint64_t theirs;
  std::uint64_t my_count;
  std::uint64_t peer_count;
  std::uint64_t valid;  // seq + 1, written last
};
static_assert(sizeof(WaitRecord) == kCacheLineBytes);

/// memory: control block. writer: the worker of the way. reader: its host.
struct WayRecords {
  WaitRecord slow_wait;  // who everybody waits for; the stream way takes it back when the wait has ended
  WaitRecord failure;    // why it broke
};

/// memory: control block. writer: host threads of this rank, once a wait has outlasted its first polls. reader: `why`,
/// `top`. zero: nobody waits.
struct alignas(kCacheLineBytes) HostWaitLine {
  std::uint64_t threads;   // in `wait` now
  std::uint64_t since_ns;  // CLOCK_MONOTONIC; of the one that came last, as is `seq`
  std::uint64_t seq;
};

struct alignas(kPageBytes) ControlBlock {
  StateLine state;  // of the host way's worker
  HostControlLine control;
  WayRecords way[kWays];
  HostWaitLine host_wait;
};
static_assert(sizeof(ControlBlock) == kPageBytes);

/// Byte offsets behind the control block, for a queue of `depth` slots (power of two).
RINGBELL_HD constexpr std::uint64_t queue_offset() { return sizeof(ControlBlock); }
RINGBELL_HD constexpr std::uint64_t completions_offset(std::uint64_t depth) {
  return queue_offset() + depth * sizeof(CommandSlot);
}
RINGBELL_HD constexpr std::uint64_t control_bytes(std::uint64_t depth) {
  return (completions_offset(depth) + depth * sizeof(Completion) + kPageBytes - 1) / kPageBytes * kPageBytes;
}
static_assert(completions_offset(2) % kCacheLineBytes == 0);

/// Why a rank gave up, in one word: status | reporter << 8 | peer << 16 | packed kind. 0 = nobody did.
RINGBELL_HD constexpr std::uint64_t abort_code(Status status, unsigned reporter, unsigned peer) {
  return static_cast<std::uint64_t>(status) | static_cast<std::uint64_t>(reporter) << 8 |
         static_cast<std::uint64_t>(peer) << 16;
}
RINGBELL_HD constexpr Status abort_status(std::uint64_t code) { return static_cast<Status>(code & 0xff); }
RINGBELL_HD constexpr unsigned abort_reporter(std::uint64_t code) { return static_cast<unsigned>(code >> 8 & 0xff); }
RINGBELL_HD constexpr unsigned abort_peer(std::uint64_t code) { return static_cast<unsigned>(code >> 16 & 0xff); }

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_LAYOUT_CONTROL_HPP_
