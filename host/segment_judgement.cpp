// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment_judgement.hpp"

#include <fmt/format.h>

#include "host/liveness.hpp"

namespace ringbell::host {
namespace {

std::string owners_text(const SegmentEvidence& evidence) {
  std::string list;
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    const OwnerEvidence& owner = evidence.owner[static_cast<std::size_t>(rank)];
    if (!owner.claimed) continue;
    list += fmt::format("{}rank {} (pid {})", list.empty() ? "" : ", ", rank, owner.pid);
  }
  return list;
}

std::string dead_text(const SegmentEvidence& evidence) {
  if (!evidence.complete) return "its maker died before it was ready";
  if (evidence.layout_version != kSegmentLayoutVersion) {
    return fmt::format("no rank locks it and nobody has it open; layout version {}, this library's is {}",
                       evidence.layout_version, kSegmentLayoutVersion);
  }
  const std::string owners = owners_text(evidence);
  return owners.empty() ? "its maker died before any rank came" : "gone: " + owners;
}

}  // namespace

const char* segment_state_name(SegmentState state) noexcept {
  switch (state) {
    case SegmentState::kGone: return "gone";
    case SegmentState::kLive: return "live";
    case SegmentState::kTooEarly: return "too early to tell";
    case SegmentState::kUnclear: return "unclear";
    case SegmentState::kStale: return "stale";
    case SegmentState::kHalfMade: return "half-made";
    case SegmentState::kForeign: return "foreign";
    case SegmentState::kStranger: return "not ours";
  }
  return "?";
}

SegmentVerdict judge_segment(const SegmentEvidence& evidence) {
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    const OwnerEvidence& owner = evidence.owner[static_cast<std::size_t>(rank)];
    if (owner.lock_free) continue;
    return {SegmentState::kLive, owner.lock_holder == 0
                                     ? fmt::format("its rank {} is alive (in another PID namespace)", rank)
                                     : fmt::format("its rank {} is alive (pid {})", rank, owner.lock_holder)};
  }
  // Its maker takes the lock some microseconds after the file appears.
  if (!evidence.complete && evidence.age_s < kYoungSegmentSeconds) {
    return {SegmentState::kTooEarly, "it was made just now", false};
  }
  // A rank whose lock was dropped by a stray close takes it again within a tick.
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    const OwnerEvidence& owner = evidence.owner[static_cast<std::size_t>(rank)];
    if (owner.has_beaten && owner.heartbeat_age_ns <= kHeartbeatStaleNs) {
      return {SegmentState::kTooEarly, fmt::format("its rank {} beat just now", rank), false};
    }
  }
  if (evidence.open_by == OpenBy::kVisible) {
    return {SegmentState::kLive, fmt::format("process {} has it open", evidence.open_pid), false};
  }
  if (evidence.open_by == OpenBy::kInvisible) {
    return {SegmentState::kUnclear, "a process that cannot be seen from here has it open (another PID namespace?)",
            false};
  }
  if (evidence.open_by == OpenBy::kNobodySeen) {
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const OwnerEvidence& owner = evidence.owner[static_cast<std::size_t>(rank)];
      if (!owner.claimed || owner.ended || !owner.hidden) continue;
      return {
          SegmentState::kUnclear,
          fmt::format("rank {} (pid {} of another PID namespace, or unreadable) holds no lock, but whether it lives "
                      "cannot be seen from here",
                      rank, owner.pid)};
    }
  }
  return {evidence.complete ? SegmentState::kStale : SegmentState::kHalfMade, dead_text(evidence)};
}

}  // namespace ringbell::host
