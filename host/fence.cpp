// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/fence.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <time.h>

#include "host/clock.hpp"
#include "host/error.hpp"

namespace ringbell::host {
namespace {

constexpr std::uint64_t kSpinNs = 20'000;
constexpr std::uint64_t kFirstSleepNs = 50'000;
constexpr std::uint64_t kLongestSleepNs = 1'000'000;
constexpr std::uint64_t kCheckEveryNs = 10'000'000;  // well under the 25 ms tick and the 100 ms stale limit

/// Spins, then sleeps longer and longer.
class Pause {
 public:
  void operator()() noexcept {
    if (monotonic_ns() - start_ns_ < kSpinNs) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      return;
    }
    sleep_ns(static_cast<long>(sleep_ns_));
    sleep_ns_ = std::min(sleep_ns_ * 2, kLongestSleepNs);
  }
  [[nodiscard]] double waited_seconds() const noexcept {
    return static_cast<double>(monotonic_ns() - start_ns_) / static_cast<double>(kNanosPerSecond);
  }

 private:
  std::uint64_t start_ns_ = monotonic_ns();
  std::uint64_t sleep_ns_ = kFirstSleepNs;
};

bool has_passed(Phase at, Phase awaited) noexcept { return at != Phase::kFailed && at >= awaited; }

std::string absent_text(const Segment& segment, const Liveness& liveness, Phase awaited, double waited_seconds) {
  std::string list;
  int absent = 0;
  for (int rank = 0; rank < segment.world(); ++rank) {
    if (has_passed(segment.phase(rank), awaited)) continue;
    ++absent;
    if (!list.empty()) list += ", ";
    if (!segment.is_claimed(rank)) {
      list += fmt::format("rank {} never started", rank);
    } else {
      list += fmt::format("{} got to '{}'", liveness.describe(rank), phase_name(segment.reached(rank)));
    }
  }
  return fmt::format("{} of {} ranks did not get to '{}' in {:.1f} s: {}", absent, segment.world(), phase_name(awaited),
                     waited_seconds, list);
}

/// Why no other rank can come any more; empty when they can.
std::string removed_name_text(const Segment& segment) {
  int absent = -1;
  for (int rank = segment.world() - 1; rank >= 0; --rank) {
    if (!segment.is_claimed(rank)) absent = rank;
  }
  if (absent < 0 || segment.is_named()) return {};
  return fmt::format("somebody removed /dev/shm{} before rank {} had found it; start all ranks again", segment.name(),
                     absent);
}

constexpr const char* kTimeOutRemedy = "; start all ranks with the same id and world, or raise RINGBELL_INIT_TIMEOUT_S";

}  // namespace

void Fence::publish(Phase phase) noexcept {
  if (phase == Phase::kOpened && segment_.rank() == 0) segment_.unlink_name();
  segment_.publish_phase(phase);
}

Status Fence::try_wait_all(Phase awaited, Deadline deadline, std::string* why) noexcept {
  const bool teardown = awaited == Phase::kClosed;
  Pause pause;
  std::uint64_t checked_ns = 0;
  try {
    while (true) {
      const std::uint64_t now = monotonic_ns();
      const bool check = now - checked_ns >= kCheckEveryNs;
      bool all = true;
      bool suspended = false;
      int lost = -1;
      for (int rank = 0; rank < segment_.world(); ++rank) {
        Phase at = segment_.phase(rank);
        if (at == Phase::kFailed) {
          if (teardown) continue;
          auto failure = segment_.failure(rank);
          if (why != nullptr) *why = std::move(failure.text);
          return failure.status;
        }
        const bool passed = has_passed(at, awaited);
        // One that has passed is asked, too: whoever is still awaited may be waiting for it.
        if (check && rank != segment_.rank() && !(teardown && passed)) {
          const PeerState state = liveness_.peer(rank);
          // Read again: it may have published and left between the two looks. One that has closed left in order.
          if (state == PeerState::kLost && (at = segment_.phase(rank)) < Phase::kClosed) {
            if (teardown) continue;
            if (lost < 0) lost = rank;
          }
          suspended = suspended || (!passed && state == PeerState::kSuspended);
        }
        all = all && passed;
      }
      if (all) return Status::kOk;
      if (lost >= 0) {
        if (why != nullptr) *why = fmt::format("{} died during set-up", liveness_.describe(lost));
        return Status::kPeerLost;
      }
      if (check) {
        if (const int twice = teardown ? -1 : segment_.doubly_claimed_rank(); twice >= 0) {
          if (why != nullptr) *why = segment_.double_claim_text(twice);
          return Status::kInvalidArgument;
        }
        // Only whoever still waits for all cards can lack the rank that was refused.
        if (awaited == Phase::kWritten) {
          if (std::string refusal = segment_.refusal(); !refusal.empty()) {
            if (why != nullptr) *why = std::move(refusal);
            return Status::kInvalidArgument;
          }
          std::string removed = segment_.rank() == 0 ? removed_name_text(segment_) : std::string();
          if (!removed.empty()) {
            if (why != nullptr) *why = std::move(removed);
            return Status::kSystem;
          }
        }
        liveness_.tick();
        if (suspended && checked_ns != 0 && !deadline.is_never()) {
          deadline = Deadline::after_ns(deadline.remaining_ns() + (now - checked_ns));
        }
        checked_ns = now;
        if (deadline.expired()) {
          if (why != nullptr) *why = absent_text(segment_, liveness_, awaited, pause.waited_seconds());
          if (why != nullptr && !teardown) *why += kTimeOutRemedy;
          return Status::kTimeout;
        }
      }
      pause();
    }
  } catch (...) {  // out of memory for a text
    return Status::kSystem;
  }
}

void Fence::wait_all(Phase phase, Deadline deadline) {
  std::string why;
  const Status status = try_wait_all(phase, deadline, &why);
  if (status == Status::kOk) return;
  segment_.publish_failure(why, status);
  throw Error(status, why);
}

}  // namespace ringbell::host
