// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/liveness.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

#include "host/clock.hpp"
#include "host/log.hpp"

namespace ringbell::host {
namespace {

struct flock rank_byte(int rank) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

int lock_call(int fd, int command, struct flock& lock) noexcept {
  int result;
  do {
    result = ::fcntl(fd, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

bool lock_rank_byte(int fd, int rank, std::uint32_t* holder) noexcept {
  struct flock lock = rank_byte(rank);
  if (lock_call(fd, F_SETLK, lock) == 0) return true;
  const int error = errno;
  if (holder != nullptr) rank_byte_is_free(fd, rank, holder);
  errno = error;
  return false;
}

void unlock_rank_byte(int fd, int rank) noexcept {
  struct flock lock = rank_byte(rank);
  lock.l_type = F_UNLCK;
  lock_call(fd, F_SETLK, lock);
}

bool rank_byte_is_free(int fd, int rank, std::uint32_t* holder) noexcept {
  struct flock lock = rank_byte(rank);
  if (holder != nullptr) *holder = 0;
  if (lock_call(fd, F_GETLK, lock) != 0) return false;  // a failed question is no proof of death
  if (lock.l_type == F_UNLCK) return true;
  if (holder != nullptr && lock.l_pid > 0) *holder = static_cast<std::uint32_t>(lock.l_pid);
  return false;
}

PeerState judge_peer(const PeerEvidence& evidence) noexcept {
  if (evidence.same_process || !evidence.claimed) return PeerState::kAlive;
  if (evidence.run == ProcessRun::kSuspended) return PeerState::kSuspended;  // it cannot beat; that proves nothing
  if (!evidence.lock_free) return PeerState::kAlive;
  // A visible process is no proof of life: after exec, or after it closed its session, the pid lives on.
  return evidence.heartbeat_age_ns > kHeartbeatStaleNs ? PeerState::kLost : PeerState::kLockDropped;
}

void Liveness::tick() noexcept {
  if (!segment_.in_owner_process()) return;
  const int rank = segment_.rank();
  // relaxed: only its age is read, nothing is published by it
  std::atomic_ref(segment_.header().heartbeat[rank].beat_ns).store(monotonic_ns(), std::memory_order_relaxed);
  std::uint32_t holder = 0;
  if (!lock_rank_byte(segment_.fd(), rank, &holder) && !lock_conflict_said_.exchange(true)) {
    log_message(LogLevel::kError,
                "another process holds this rank's lock on the session's segment: peers will not notice "
                "when this rank dies");
  }
}

bool Liveness::peer_locked(int peer) const noexcept { return !rank_byte_is_free(segment_.fd(), peer); }

PeerState Liveness::peer(int peer) noexcept {
  PeerEvidence evidence;
  std::uint64_t beat_ns = 0;
  evidence.claimed = segment_.is_claimed(peer);
  evidence.same_process = segment_.same_process(peer);
  if (!evidence.same_process && evidence.claimed) {
    // The heartbeat is read after the lock: a peer that drops its lock and beats in between counts as alive.
    evidence.lock_free = !peer_locked(peer);
    beat_ns = std::atomic_ref(segment_.header().heartbeat[peer].beat_ns).load(std::memory_order_relaxed);
    const std::uint64_t now = monotonic_ns();
    evidence.heartbeat_age_ns = now > beat_ns ? now - beat_ns : 0;
    const bool quiet = evidence.heartbeat_age_ns > kHeartbeatStaleNs;
    if (quiet && segment_.phase(peer) != Phase::kNone) {
      const RankCard& card = segment_.card(peer);
      evidence.run = process_run_state(card.pid, card.start_time, card.pid_namespace);
    }
  }
  const PeerState state = judge_peer(evidence);
  say_changes(peer, state, beat_ns);
  return state;
}

void Liveness::say_changes(int peer, PeerState state, std::uint64_t beat_ns) noexcept {
  Seen& seen = seen_[static_cast<std::size_t>(peer)];
  const PeerState before = seen.state.exchange(state, std::memory_order_relaxed);
  bool dropped_and_alive = false;
  if (state == PeerState::kLockDropped) {
    std::uint64_t none = 0;
    const bool first = seen.beat_when_dropped_ns.compare_exchange_strong(none, beat_ns, std::memory_order_relaxed);
    dropped_and_alive = !first && beat_ns > none && !seen.drop_said.exchange(true, std::memory_order_relaxed);
  } else if (state == PeerState::kAlive && seen.beat_when_dropped_ns.load(std::memory_order_relaxed) != 0) {
    dropped_and_alive = seen.beat_when_dropped_ns.exchange(0, std::memory_order_relaxed) != 0 &&
                        !seen.drop_said.exchange(false, std::memory_order_relaxed);
  }
  try {
    if (dropped_and_alive && log_enabled(LogLevel::kWarn)) {
      log_message(LogLevel::kWarn,
                  fmt::format("{} lives but had lost its lock on the session's segment: something in it "
                              "opened and closed {}",
                              describe(peer), segment_.name()));
    }
    if (state == PeerState::kSuspended && before != state && log_enabled(LogLevel::kWarn)) {
      log_message(LogLevel::kWarn,
                  fmt::format("{} is stopped by a signal or a debugger; time-outs wait for it", describe(peer)));
    }
  } catch (...) {  // out of memory for a line of log
  }
}

std::string Liveness::describe(int peer) const {
  const std::uint32_t pid = segment_.owner_pid(peer);
  return pid == 0 ? fmt::format("rank {}", peer) : fmt::format("rank {} (pid {})", peer, pid);
}

}  // namespace ringbell::host
