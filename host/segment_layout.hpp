// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a session's segment: header page, one card page per rank, then each rank's control bytes and window.
// Plain data at fixed offsets: no pointers, no locks, no library types. Who opens it is host/segment.hpp.
//
//   0        SegmentHeader                    one page, reserved by rank 0
//   4096     RankCard[world]                  one page each, reserved by rank 0 (so a failing rank can always say why)
//   ...      control_bytes x world            each rank reserves and first touches its own
//   ...      window_bytes x world             each rank reserves and first touches its own (0 bytes on CUDA)
#ifndef RINGBELL_HOST_SEGMENT_LAYOUT_HPP_
#define RINGBELL_HOST_SEGMENT_LAYOUT_HPP_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/config.hpp"

namespace ringbell::host {

inline constexpr int kMaxRanks = device::kMaxRanks;
inline constexpr std::size_t kPageBytes = device::kPageBytes;
inline constexpr std::size_t kLineBytes = device::kCacheLineBytes;

/// "RNGBELL" + 1. The magic's place and value, and the lock on byte `rank` of the file, hold for every layout version:
/// they are how a newer or older library tells whether a leftover segment is dead.
inline constexpr std::uint64_t kSegmentMagic = 0x014c4c4542474e52;
inline constexpr std::uint32_t kSegmentLayoutVersion = 2;
inline constexpr std::uint64_t kCardMagic = 0x0144524143424e52;

/// How far a rank's set-up got. Goes up only; kFailed ends it from anywhere.
enum class Phase : std::uint64_t {
  kNone = 0,     ///< nobody has taken this rank yet
  kClaimed = 1,  ///< the card's identity fields are valid
  kWritten = 2,  ///< the whole card is valid, windows are zeroed and synchronised
  kOpened = 3,   ///< this rank has opened every peer's window
  kClosed = 4,   ///< teardown: this rank has stopped and closed its imports of peers' windows
  kFailed = 5,   ///< set-up ended; the card's error text is valid
};
const char* phase_name(Phase phase) noexcept;

/// Taken by compare-exchange; not a single-writer line: every process that believes to be this rank writes here.
struct alignas(kLineBytes) ClaimLine {
  std::uint64_t owner;      ///< process token of the rank's owner; 0 = free. Any claimant writes, once; all read
  std::uint64_t owner_pid;  ///< writer: the owner, after winning; readers: messages only; 0 = not yet written
  std::uint64_t second;     ///< pid (or 1) of the first claimant that came too late; 0 = none. All read
  std::byte unused[kLineBytes - 24];
};
/// Writer: the rank. Readers: all.
struct alignas(kLineBytes) PhaseLine {
  std::uint64_t phase;    ///< Phase; 0 = kNone
  std::uint64_t reached;  ///< the highest phase before kFailed, for messages; 0 = kNone
  std::byte unused[kLineBytes - 16];
};
/// Writer: the rank (its service thread, or the thread inside set-up). Readers: all.
struct alignas(kLineBytes) HeartbeatLine {
  std::uint64_t beat_ns;  ///< CLOCK_MONOTONIC of the last tick; 0 = none yet
  std::byte unused[kLineBytes - 8];
};

/// RefusalNote::state.
enum class Refusal : std::uint64_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };

/// What a rank says that opened the segment and may not take part: it has no card. Writer: the first such rank, after
/// it moved `state` from kNone by compare-exchange. Readers: all, after acquiring kWritten.
struct alignas(kLineBytes) RefusalNote {
  std::uint64_t state;  ///< Refusal; 0 = nobody was refused
  char text[504];       ///< about the group: every rank repeats it; ends with 0
};
static_assert(sizeof(RefusalNote) == 4 * kLineBytes);

inline constexpr std::size_t kSizeSources = 4;
inline constexpr std::size_t kSizeSourceChars = 32;

/// Writer of the identity part: rank 0 before the magic is released, nobody after. Readers: all.
struct SegmentHeader {
  std::uint64_t magic;  ///< kSegmentMagic, written last; 0 = the creator is not done
  std::uint32_t layout_version;
  std::uint32_t header_bytes;   ///< sizeof(SegmentHeader)
  std::uint64_t total_bytes;    ///< of the file
  std::uint64_t control_bytes;  ///< per rank, a page multiple
  std::uint64_t window_bytes;   ///< per rank, a page multiple, may be 0
  std::uint32_t world;
  std::uint32_t uid;       ///< effective uid of the creator
  std::uint8_t token[16];  ///< of the unique id
  std::uint64_t nonce;     ///< random, never 0: tells this segment from another one under the same name
  std::uint8_t boot_id[16];
  std::uint64_t shm_device;   ///< st_dev of the creator's /dev/shm
  std::uint32_t creator_pid;  ///< messages only: in the creator's PID namespace
  std::uint32_t unused_word;
  std::byte unused[16];

  RefusalNote refusal;
  char size_source[kSizeSources][kSizeSourceChars];  ///< values of the creator's SizeSources, each ends with 0
  std::byte unused_bytes[1024 - 768];

  ClaimLine claim[kMaxRanks];
  PhaseLine phase[kMaxRanks];
  HeartbeatLine heartbeat[kMaxRanks];
};
static_assert(sizeof(ClaimLine) == kLineBytes && sizeof(PhaseLine) == kLineBytes &&
              sizeof(HeartbeatLine) == kLineBytes);
static_assert(offsetof(SegmentHeader, magic) == 0);
static_assert(offsetof(SegmentHeader, layout_version) == 8);
static_assert(offsetof(SegmentHeader, total_bytes) == 16);
static_assert(offsetof(SegmentHeader, token) == 48);
static_assert(offsetof(SegmentHeader, refusal) == 128);
static_assert(offsetof(SegmentHeader, size_source) == 640);
static_assert(offsetof(SegmentHeader, claim) == 1024);
static_assert(offsetof(SegmentHeader, phase) == 2048);
static_assert(offsetof(SegmentHeader, heartbeat) == 3072);
static_assert(sizeof(SegmentHeader) == kPageBytes);
static_assert(std::is_standard_layout_v<SegmentHeader> && std::is_trivially_copyable_v<SegmentHeader>);

/// RankCard::capabilities: lines of 128 bytes come whole to this rank from every peer.
inline constexpr std::uint64_t kCapabilityLl128 = 1;

enum class DeviceKind : std::uint32_t { kNone = 0, kCpu = 1, kCuda = 2 };

/// What a rank tells the others at set-up. Writer: that rank, before it publishes the phase that makes a part valid;
/// nothing is written afterwards except the error text before kFailed. Readers: all, after acquiring the phase.
struct alignas(kPageBytes) RankCard {
  // valid from kClaimed, written by Segment
  std::uint64_t magic;  ///< kCardMagic; 0 = not written
  std::uint64_t nonce;  ///< the header's
  std::uint32_t rank;
  std::uint32_t uid;
  std::uint32_t pid;  ///< in the rank's own PID namespace
  std::uint32_t unused_word;
  std::uint64_t start_time;
  std::uint64_t pid_namespace;  ///< inode; pids may be used only where equal
  std::uint64_t host_hash;
  std::uint64_t process_token;  ///< equal = same process: windows are plain pointers

  // valid from kWritten, written by the executor and the communicator
  DeviceKind device_kind;
  std::uint32_t device_ordinal;  ///< in the rank's own numbering; messages only
  std::uint8_t gpu_uuid[16];     ///< zero on the CPU executor
  char pci_id[32];               ///< "0000:1b:00.0", ends with 0
  std::uint64_t capabilities;    ///< bits below; valid from kOpened, when the links have been tried
  std::uint64_t config_hash;
  char library_version[64];        ///< ends with 0
  std::uint8_t window_handle[64];  ///< cudaIpcMemHandle_t; zero on the CPU executor
  std::uint64_t window_offset;     ///< of the window inside the exported allocation
  std::uint64_t window_bytes;
  std::uint64_t window_pointer;  ///< address in the rank's process; used only where process_token is equal
  std::byte agreement[2048];     ///< opaque here: what ranks must agree on, written and compared by the communicator

  // valid from kFailed
  std::uint32_t error_verdict;  ///< 0: `error_text` is this rank's own; else a Status: all ranks repeat the text
  std::uint32_t unused_error_word;
  char error_text[512];  ///< ends with 0

  std::byte unused[kPageBytes - 2856];
};
static_assert(offsetof(RankCard, device_kind) == 64);
static_assert(offsetof(RankCard, gpu_uuid) == 72);
static_assert(offsetof(RankCard, window_handle) == 200);
static_assert(offsetof(RankCard, agreement) == 288);
static_assert(offsetof(RankCard, error_text) == 2344);
static_assert(sizeof(RankCard) == kPageBytes);
static_assert(std::is_standard_layout_v<RankCard> && std::is_trivially_copyable_v<RankCard>);

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// Per-rank bytes that the caller defines; both are page multiples.
struct SegmentGeometry {
  std::size_t control_bytes = 0;
  std::size_t window_bytes = 0;
};

constexpr std::size_t card_offset(int rank) noexcept {
  return sizeof(SegmentHeader) + static_cast<std::size_t>(rank) * sizeof(RankCard);
}
constexpr std::size_t control_offset(int rank, int world, const SegmentGeometry& geometry) noexcept {
  return card_offset(world) + static_cast<std::size_t>(rank) * geometry.control_bytes;
}
constexpr std::size_t window_offset(int rank, int world, const SegmentGeometry& geometry) noexcept {
  return control_offset(world, world, geometry) + static_cast<std::size_t>(rank) * geometry.window_bytes;
}
constexpr std::size_t segment_bytes(int world, const SegmentGeometry& geometry) noexcept {
  return window_offset(world, world, geometry);
}

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_LAYOUT_HPP_
