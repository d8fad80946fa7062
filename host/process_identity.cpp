// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/process_identity.hpp"

#include <charconv>
#include <mutex>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/clock.hpp"
#include "host/error.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

// /proc files are short and have no size: one bounded read.
std::optional<std::string> read_small_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text(4096, 0);
  ssize_t got;
  do {
    got = ::read(fd, text.data(), text.size());
  } while (got < 0 && errno == EINTR);
  ::close(fd);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  return text;
}

std::uint64_t pid_namespace_inode() noexcept {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

std::array<std::uint8_t, 16> read_boot_id() {
  std::array<std::uint8_t, 16> id{};
  const auto text = read_small_file("/proc/sys/kernel/random/boot_id");
  if (!text) return id;
  std::size_t nibble = 0;
  for (const char c : *text) {
    unsigned value = 0;
    if (std::from_chars(&c, &c + 1, value, 16).ec != std::errc{}) continue;  // the dashes
    if (nibble < 32) id[nibble / 2] = static_cast<std::uint8_t>(unsigned{id[nibble / 2]} << 4 | value);
    ++nibble;
  }
  return id;
}

ProcessIdentity read_identity() {
  ProcessIdentity me;
  me.uid = geteuid();
  me.pid = static_cast<std::uint32_t>(getpid());
  // A /proc of another PID namespace names other processes by our pids: better to know nothing.
  char self[32] = {};
  if (readlink("/proc/self", self, sizeof self - 1) > 0 && std::to_string(me.pid) == self) {
    if (const auto stat = read_process_stat(me.pid)) me.start_time = stat->start_time;
  }
  me.pid_namespace = pid_namespace_inode();
  me.boot_id = read_boot_id();
  struct stat shm {};
  if (::stat("/dev/shm", &shm) == 0) me.shm_device = shm.st_dev;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) me.host_hash = hash64(host);
  do {
    random_bytes(&me.process_token, sizeof me.process_token);
  } while (me.process_token == 0);
  return me;
}

}  // namespace

ProcessIdentity self_identity() {
  static std::mutex mutex;
  static ProcessIdentity cached;
  const std::lock_guard lock(mutex);
  if (cached.pid != static_cast<std::uint32_t>(getpid())) cached = read_identity();  // first use, or a fork's child
  return cached;
}

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const std::size_t close = text.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  text.remove_prefix(close + 1);
  ProcessStat stat;
  // What follows is field 3 (state); the start time is field 22.
  for (int field = 3; field <= 22; ++field) {
    const std::size_t begin = text.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return std::nullopt;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    if (field == 3) stat.state = word[0];
    if (field == 22) {
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), stat.start_time);
      if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    }
    text.remove_prefix(word.size());
  }
  return stat;
}

std::optional<ProcessStat> read_process_stat(std::uint32_t pid) {
  const auto text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  return text ? parse_process_stat(*text) : std::nullopt;
}

ProcessRun process_run_state(std::uint32_t pid, std::uint64_t start_time, std::uint64_t pid_namespace) {
  const ProcessIdentity me = self_identity();
  if (pid == 0 || start_time == 0 || pid_namespace == 0 || pid_namespace != me.pid_namespace || me.start_time == 0) {
    return ProcessRun::kUnknown;
  }
  const auto stat = read_process_stat(pid);
  if (!stat || stat->start_time != start_time || stat->state == 'Z' || stat->state == 'X') return ProcessRun::kGone;
  return stat->state == 'T' || stat->state == 't' ? ProcessRun::kSuspended : ProcessRun::kRunning;
}

}  // namespace ringbell::host
