// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A file under a segment's name, asked whether anybody can miss it, and removed if not: locks, heartbeats, processes,
// and who has it open. How these are weighed is host/segment_judgement.hpp; going through all names
// host/segment_census.hpp.
#ifndef RINGBELL_HOST_SEGMENT_PROBE_HPP_
#define RINGBELL_HOST_SEGMENT_PROBE_HPP_

#include <cstdint>
#include <string>

#include "host/segment_judgement.hpp"

namespace ringbell::host {

enum class Removal : std::uint8_t { kNever, kIfDead };

/// What is under the name, and whether anybody can miss it; removes the name when nobody can: no process locks it or
/// has it open, and it is ringbell's or never got a header. Blocks for some system calls. Whoever opens the file in the
/// last microseconds before it is removed waits for the end of this, and finds a file without a name.
/// @throws Error: not private, not a segment.
SegmentVerdict probe_segment(const std::string& name, Removal removal);

/// @return empty when nothing is left under the name, else why it was not removed. @throws Error as probe_segment.
std::string remove_dead_segment(const std::string& name);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_PROBE_HPP_
