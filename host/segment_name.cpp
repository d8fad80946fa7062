// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment_name.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/error.hpp"

namespace ringbell::host {
std::string shm_path(const std::string& name) { return "/dev/shm" + name; }

void throw_not_a_segment(const std::string& name, std::uint64_t magic) {
  throw_error(Status::kSystem,
              fmt::format("{} is not a ringbell segment (it starts with {:016x})", shm_path(name), magic),
              fmt::format("remove it: rm {}", shm_path(name)));
}

void refuse_unless_private(const std::string& name, const struct stat& info) {
  const std::string path = shm_path(name);
  if (S_ISLNK(info.st_mode)) {
    throw_error(Status::kSystem, fmt::format("{} is a symbolic link that uid {} planted", path, info.st_uid),
                "ringbell does not follow it; its owner or root must remove it");
  }
  if (!S_ISREG(info.st_mode)) {
    throw_error(Status::kSystem, fmt::format("{} is not a regular file (mode {:o})", path, info.st_mode), "remove it");
  }
  if (info.st_uid != geteuid()) {
    throw_error(Status::kSystem,
                fmt::format("{} belongs to uid {}, this process runs as uid {}", path, info.st_uid, geteuid()),
                "another user's segment is neither joined nor removed; its owner or root must remove it");
  }
  if ((info.st_mode & 077) != 0) {
    throw_error(Status::kSystem,
                fmt::format("{} has mode {:04o}, but a segment is made with 0600", path, info.st_mode & 07777),
                fmt::format("others could read or change it; remove it: rm {}", path));
  }
}

}  // namespace ringbell::host
