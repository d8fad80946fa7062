// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Making and opening the file under a segment's name in /dev/shm, and whose it may be. Internal to host/segment*.cpp;
// whether a file that is there already is dead is host/segment_probe.hpp.
#ifndef RINGBELL_HOST_SEGMENT_NAME_HPP_
#define RINGBELL_HOST_SEGMENT_NAME_HPP_

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/stat.h>

#include "device/ringbell_unique_id.hpp"
#include "host/clock.hpp"
#include "host/segment_layout.hpp"

namespace ringbell::host {

class RankInSetUp;
class SharedMapping;
struct SizeSource;

/// A rank that fails early stays this long since its start, so that slower ranks still find out why: rank 0 keeps the
/// name, a doubled rank still looks for it.
inline constexpr std::uint64_t kLingerNs = 1'000'000'000;

/// What the caller expects in the header.
struct SegmentExpectation {
  const UniqueId& id;
  const std::string& name;
  int rank;
  int world;
  SegmentGeometry geometry;
  std::span<const SizeSource> sources;
  const RankInSetUp& set_up;
};

/// "/dev/shm/ringbell-.."
std::string shm_path(const std::string& name);

/// Makes, sizes, locks (byte 0), reserves header and cards, fills the header. A leftover whose owner is gone is removed
/// first. @throws Error; nothing is left behind.
std::shared_ptr<SharedMapping> create_segment_file(const SegmentExpectation& expected, Deadline deadline);

/// Waits for rank 0's segment, checks it, maps it (or takes this process's mapping of it). A rank that disagrees leaves
/// a note there, so that the others end too. @throws Error.
std::shared_ptr<SharedMapping> open_segment_file(const SegmentExpectation& expected, Deadline deadline);

/// Reserves pages of the file. @throws Error(kSystem) with needed and free bytes when /dev/shm is full.
void reserve_pages(int fd, std::size_t offset, std::size_t bytes, std::size_t total_bytes);

/// Throws Error(kSystem) unless `info` is a regular file of this user that nobody else may touch.
void refuse_unless_private(const std::string& name, const struct stat& info);

[[noreturn]] void throw_not_a_segment(const std::string& name, std::uint64_t magic);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_NAME_HPP_
