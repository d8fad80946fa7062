// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which processes have a segment open, by /proc: how a running session is found whose name has gone. What its bytes say
// is runtime/session_view.hpp.
#ifndef RINGBELL_HOST_OPEN_SEGMENTS_HPP_
#define RINGBELL_HOST_OPEN_SEGMENTS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace ringbell::host {

/// A descriptor of a process. The number may mean another file by the time it is used.
struct OpenSegment {
  std::uint32_t pid = 0;
  int fd = -1;
  std::string name;  ///< "/ringbell-0-0123456789abcdef"
  dev_t device = 0;
  ino_t inode = 0;
};

/// All processes that /proc shows. Empty where there is none.
std::vector<std::uint32_t> process_ids();

/// The process's descriptors of files in /dev/shm whose name begins so; a file that has lost its name counts, too.
/// @param prefix "/ringbell-0-", or a whole name
/// @return nullopt where its descriptors cannot be seen: it has gone, or is another user's
std::optional<std::vector<OpenSegment>> open_segments_of(std::uint32_t pid, std::string_view prefix);

/// "/proc/12/fd/3": opening it opens that very file.
std::string descriptor_path(const OpenSegment& segment);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_OPEN_SEGMENTS_HPP_
