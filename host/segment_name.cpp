// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment_name.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/shared_mapping.hpp"

namespace ringbell::host {
namespace {

// A creator takes its lock some microseconds after the file appears; across PID namespaces only time can tell.
constexpr double kYoungSeconds = 1.0;
constexpr int kCleanerByte = 63;

double age_seconds(const struct stat& info) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);  // file times have no other clock
  return static_cast<double>(now.tv_sec - info.st_mtim.tv_sec) +
         static_cast<double>(now.tv_nsec - info.st_mtim.tv_nsec) / 1e9;
}

bool is_process_folder(const char* name) { return std::isdigit(static_cast<unsigned char>(name[0])) != 0; }

/// Pids, as far as /proc shows them, that have the file open.
std::vector<int> visible_holders(const std::string& path) {
  std::vector<int> holders;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return holders;
  while (const dirent* process = readdir(proc)) {
    if (!is_process_folder(process->d_name)) continue;
    const std::string folder = std::string("/proc/") + process->d_name + "/fd";
    DIR* const fds = opendir(folder.c_str());
    if (fds == nullptr) continue;  // another user's, or just gone
    while (const dirent* fd = readdir(fds)) {
      char target[512];
      const ssize_t length = readlink((folder + "/" + fd->d_name).c_str(), target, sizeof target);
      if (length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == path) {
        holders.push_back(std::atoi(process->d_name));
        break;
      }
    }
    closedir(fds);
  }
  closedir(proc);
  return holders;
}

/// Closes on every path out of the probe.
class File {
 public:
  explicit File(int fd) noexcept : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string probe_dead_and_remove(const std::string& name, const struct stat& found) {
  const File file(shm_open(name.c_str(), O_RDWR, 0));
  if (file.fd() < 0) return errno == ENOENT ? std::string() : errno_text(errno);
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return errno_text(errno);
  if (info.st_dev != found.st_dev || info.st_ino != found.st_ino) return "it was replaced just now";

  // Two cleaners cannot both go on. The ranks' own bytes are only asked for: an opener takes a held byte 0 for a live
  // rank 0.
  if (!lock_rank_byte(file.fd(), kCleanerByte)) return "another process is about to remove it";
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    std::uint32_t holder = 0;
    if (!rank_byte_is_free(file.fd(), rank, &holder)) {
      return holder == 0 ? fmt::format("its rank {} is alive", rank)
                         : fmt::format("its rank {} is alive (pid {})", rank, holder);
    }
  }
  SegmentHeader header{};
  const ssize_t got = pread(file.fd(), &header, sizeof header, 0);
  if (got < 0) return errno_text(errno);
  if (header.magic == 0) {
    if (age_seconds(info) < kYoungSeconds) return "it was made just now";
  } else if (header.magic != kSegmentMagic) {
    throw_not_a_segment(name, header.magic);
  } else if (header.layout_version == kSegmentLayoutVersion) {
    const std::uint64_t now = monotonic_ns();
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const std::uint64_t beat = header.heartbeat[rank].beat_ns;
      if (beat != 0 && now - beat <= kHeartbeatStaleNs) return fmt::format("its rank {} beat just now", rank);
    }
  }
  for (const int pid : visible_holders(shm_path(name))) {
    if (pid != getpid()) return fmt::format("process {} has it open", pid);
  }
  struct stat again {};
  if (lstat(shm_path(name).c_str(), &again) != 0) return errno == ENOENT ? std::string() : errno_text(errno);
  if (again.st_dev != info.st_dev || again.st_ino != info.st_ino) return "it was replaced just now";
  return shm_unlink(name.c_str()) == 0 || errno == ENOENT ? std::string() : errno_text(errno);
}

}  // namespace

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

std::string remove_dead_segment(const std::string& name) {
  const std::lock_guard lock(mapping_registry_mutex());
  struct stat found {};
  if (lstat(shm_path(name).c_str(), &found) != 0) return errno == ENOENT ? std::string() : errno_text(errno);
  refuse_unless_private(name, found);
  // Not opened again: closing that descriptor would drop this process's locks.
  if (registered_mapping(found.st_dev, found.st_ino)) return "a rank of this very process uses it";
  return probe_dead_and_remove(name, found);
}

}  // namespace ringbell::host
