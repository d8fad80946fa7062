// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Is a segment that is found under a name in use, or did its owners die? The rule alone, pure; the evidence is gathered
// in host/segment_name.cpp. What a peer of a running session thinks of another one is host/liveness.hpp.
#ifndef RINGBELL_HOST_SEGMENT_JUDGEMENT_HPP_
#define RINGBELL_HOST_SEGMENT_JUDGEMENT_HPP_

#include <array>
#include <cstdint>
#include <string>

#include "host/segment_layout.hpp"

namespace ringbell::host {

enum class SegmentState : std::uint8_t {
  kGone,      ///< nothing has that name
  kLive,      ///< an owner lives, or a process has it open
  kTooEarly,  ///< what is seen may change within a second: made, beaten, or looked at by somebody just now
  kUnclear,   ///< whether an owner lives cannot be told from here
  kStale,     ///< complete, and every owner is dead
  kHalfMade,  ///< never got a header, and its maker is dead
  kForeign,   ///< another user's
  kStranger,  ///< not made by this library: other content, kind or mode
};
/// "stale", "half-made", ..
const char* segment_state_name(SegmentState state) noexcept;
/// True when nothing that lives can miss it.
constexpr bool is_dead(SegmentState state) noexcept {
  return state == SegmentState::kStale || state == SegmentState::kHalfMade;
}

struct SegmentVerdict {
  SegmentState state = SegmentState::kGone;
  std::string why;      ///< "its rank 1 is alive (pid 12)"
  bool settled = true;  ///< false: the answer may be another one within a second, when whoever looks at it has gone
  bool removed = false;
};

/// Of one rank. Locks hold for every layout version; the rest is known only where the layout is.
struct OwnerEvidence {
  bool lock_free = true;
  std::uint32_t lock_holder = 0;  ///< 0: in another PID namespace
  bool claimed = false;           ///< somebody has taken the rank
  bool ended = false;             ///< it left in order, or said that it failed
  bool hidden = false;            ///< its process, if it lives, and what it has open cannot be seen from here
  bool has_beaten = false;
  std::uint64_t heartbeat_age_ns = 0;
  std::uint32_t pid = 0;  ///< in its own PID namespace; messages only
};

/// Who, besides the one that asks, has the file open or mapped.
enum class OpenBy : std::uint8_t {
  kNobody,      ///< the kernel says so, for every PID namespace and user
  kVisible,     ///< `open_pid`
  kInvisible,   ///< the kernel says somebody, /proc does not show whom
  kNobodySeen,  ///< /proc shows nobody, the kernel was not able to say
};

struct SegmentEvidence {
  bool complete = false;  ///< it has the magic
  std::uint32_t layout_version = kSegmentLayoutVersion;
  double age_s = 0;
  OpenBy open_by = OpenBy::kNobody;
  std::uint32_t open_pid = 0;
  std::array<OwnerEvidence, kMaxRanks> owner{};
};

/// A creator without a lock is younger than this, unless the kernel shows that somebody has the file open.
inline constexpr double kYoungSegmentSeconds = 1.0;

SegmentVerdict judge_segment(const SegmentEvidence& evidence);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_JUDGEMENT_HPP_
