// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/open_segments.hpp"

#include <charconv>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ringbell::host {
namespace {

std::optional<std::uint32_t> whole_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The names in a folder of /proc that are numbers. @return nullopt if it cannot be read
std::optional<std::vector<std::uint32_t>> numbers_in(const std::string& folder) {
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return std::nullopt;
  std::vector<std::uint32_t> numbers;
  while (const dirent* entry = readdir(dir)) {
    if (const auto number = whole_number(entry->d_name)) numbers.push_back(*number);
  }
  closedir(dir);
  return numbers;
}

}  // namespace

std::vector<std::uint32_t> process_ids() { return numbers_in("/proc").value_or(std::vector<std::uint32_t>{}); }

std::string descriptor_path(const OpenSegment& segment) {
  return fmt::format("/proc/{}/fd/{}", segment.pid, segment.fd);
}

std::optional<std::vector<OpenSegment>> open_segments_of(std::uint32_t pid, std::string_view prefix) {
  const auto fds = numbers_in(fmt::format("/proc/{}/fd", pid));
  if (!fds) return std::nullopt;
  std::vector<OpenSegment> found;
  for (const std::uint32_t fd : *fds) {
    OpenSegment segment{pid, static_cast<int>(fd), {}, 0, 0};
    const std::string path = descriptor_path(segment);
    char target[512];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length <= 0) continue;
    // The text depends on the process's mounts: "/dev/shm/NAME", or that with " (deleted)" behind it. Only what looks
    // right is asked for its inode, which does not depend on them: to ask every descriptor could block.
    std::string_view text(target, static_cast<std::size_t>(length));
    const std::size_t slash = text.rfind('/');
    if (slash == std::string_view::npos || !text.substr(slash).starts_with(prefix)) continue;
    struct stat info {};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    text.remove_prefix(slash);
    segment.name = text.substr(0, text.find(' '));
    segment.device = info.st_dev;
    segment.inode = info.st_ino;
    found.push_back(std::move(segment));
  }
  return found;
}

}  // namespace ringbell::host
