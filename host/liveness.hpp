// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Is a peer process alive? Judged from three witnesses: the file lock on its byte of the segment, its heartbeat, and
// /proc where pids mean the same. Does not watch progress: a peer that is alive and late is the time-out's matter.
#ifndef RINGBELL_HOST_LIVENESS_HPP_
#define RINGBELL_HOST_LIVENESS_HPP_

#include <array>
#include <atomic>
#include <cstdint>

#include "host/process_identity.hpp"
#include "host/segment.hpp"

namespace ringbell::host {

inline constexpr std::uint64_t kHeartbeatStaleNs = 100'000'000;

enum class PeerState : std::uint8_t {
  kAlive,
  kLockDropped,  ///< alive by its heartbeat, but its lock is free: something in it opened and closed the segment's file
  kSuspended,    ///< stopped by a signal or a debugger: time-outs do not run meanwhile
  kLost,         ///< gone: lock free and heartbeat older than kHeartbeatStaleNs
};

struct PeerEvidence {
  bool same_process = false;
  bool claimed = true;  ///< false: no process has taken this rank yet; then nothing can be lost
  bool lock_free = false;
  std::uint64_t heartbeat_age_ns = 0;
  ProcessRun run = ProcessRun::kUnknown;
};
/// The rule alone, pure.
PeerState judge_peer(const PeerEvidence& evidence) noexcept;

/// Takes the write lock on byte `rank` of `fd`. @return false when another process holds it; `holder` (may be null)
/// gets its pid, 0 when it is in another PID namespace.
bool lock_rank_byte(int fd, int rank, std::uint32_t* holder = nullptr) noexcept;
void unlock_rank_byte(int fd, int rank) noexcept;
/// @return true when no OTHER process holds the lock (own locks are invisible to F_GETLK). `holder` as above.
bool rank_byte_is_free(int fd, int rank, std::uint32_t* holder = nullptr) noexcept;

/// One per rank. tick() is for one thread at a time (service thread, or the thread inside set-up); peer() for any
/// thread. Neither blocks; both are a few system calls.
class Liveness {
 public:
  /// @param segment must outlive this
  explicit Liveness(const Segment& segment) noexcept : segment_(segment) {}

  /// Writes this rank's heartbeat and takes its lock again if it was dropped. Call it at least every 25 ms.
  void tick() noexcept;
  /// What holds for `peer` now. Logs a dropped lock and a suspension once per occurrence; the former only once the peer
  /// has shown that it lives (it beat again, or took its lock again), since a peer that just died looks the same at
  /// first.
  PeerState peer(int peer) noexcept;
  /// True when another process holds the lock on this byte.
  [[nodiscard]] bool peer_locked(int peer) const noexcept;
  /// "rank 2 (pid 4711)".
  [[nodiscard]] std::string describe(int peer) const;

 private:
  void say_changes(int peer, PeerState state, std::uint64_t beat_ns) noexcept;

  const Segment& segment_;
  struct Seen {
    std::atomic<PeerState> state{PeerState::kAlive};
    std::atomic<std::uint64_t> beat_when_dropped_ns{0};  ///< 0: lock not seen free since it was last held
    std::atomic<bool> drop_said{false};
  };
  std::array<Seen, kMaxRanks> seen_;
  std::atomic<bool> lock_conflict_said_{false};
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_LIVENESS_HPP_
