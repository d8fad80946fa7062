// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment_probe.hpp"

#include <array>
#include <cstring>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/open_segments.hpp"
#include "host/process_identity.hpp"
#include "host/segment_name.hpp"
#include "host/shared_mapping.hpp"

namespace ringbell::host {
namespace {

constexpr int kCleanerByte = 63;
// Sent by the kernel to whoever holds a lease when somebody opens the file; nothing happens unless it is asked for.
constexpr int kHarmlessSignal = SIGURG;

double age_seconds(const struct stat& info) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);  // file times have no other clock
  return static_cast<double>(now.tv_sec - info.st_mtim.tv_sec) +
         static_cast<double>(now.tv_nsec - info.st_mtim.tv_nsec) / 1e9;
}

SegmentVerdict unclear(int error) { return {SegmentState::kUnclear, errno_text(error)}; }

/// A process, other than this one, that has the file open as far as /proc shows; 0: none.
std::uint32_t visible_holder(const std::string& name, const struct stat& file) {
  for (const std::uint32_t pid : process_ids()) {
    if (pid == static_cast<std::uint32_t>(getpid())) continue;
    const auto segments = open_segments_of(pid, name);
    if (!segments) continue;  // another user's, or just gone
    for (const OpenSegment& open : *segments) {
      if (open.device == file.st_dev && open.inode == file.st_ino) return pid;
    }
  }
  return 0;
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

bool can_look_into(std::uint32_t pid) {
  return access(("/proc/" + std::to_string(pid) + "/fd").c_str(), R_OK | X_OK) == 0;
}

void read_owner(int fd, const SegmentHeader& header, int rank, OwnerEvidence& owner) {
  const bool same_boot = [&] {
    const ProcessIdentity me = self_identity();
    const std::array<std::uint8_t, 16> unknown{};
    return me.boot_id == unknown || std::memcmp(header.boot_id, unknown.data(), unknown.size()) == 0 ||
           std::memcmp(header.boot_id, me.boot_id.data(), me.boot_id.size()) == 0;
  }();
  owner.claimed = header.claim[rank].owner != 0;
  owner.pid = static_cast<std::uint32_t>(header.claim[rank].owner_pid);
  owner.ended = header.phase[rank].phase >= static_cast<std::uint64_t>(Phase::kClosed);
  if (!same_boot) return;  // its times and pids mean nothing here
  const std::uint64_t beat = header.heartbeat[rank].beat_ns;
  owner.has_beaten = beat != 0;
  owner.heartbeat_age_ns = monotonic_ns() - beat;
  RankCard card;
  if (!owner.claimed || pread(fd, &card, sizeof card, static_cast<off_t>(card_offset(rank))) != sizeof card) return;
  if (card.magic != kCardMagic) return;
  const ProcessRun run = process_run_state(card.pid, card.start_time, card.pid_namespace);
  owner.hidden = run == ProcessRun::kUnknown || (run != ProcessRun::kGone && !can_look_into(card.pid));
}

/// Everything but who has it open. @throws Error: not a segment
SegmentEvidence gather(const std::string& name, int fd, const struct stat& info) {
  SegmentEvidence evidence;
  evidence.age_s = age_seconds(info);
  // Only asked for: an opener takes a held byte 0 for a live rank 0.
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    OwnerEvidence& owner = evidence.owner[static_cast<std::size_t>(rank)];
    owner.lock_free = rank_byte_is_free(fd, rank, &owner.lock_holder);
  }
  SegmentHeader header{};
  const ssize_t got = pread(fd, &header, sizeof header, 0);
  if (got < 0) throw_errno("pread", name);
  if (header.magic == 0) return evidence;
  if (header.magic != kSegmentMagic) throw_not_a_segment(name, header.magic);
  evidence.complete = true;
  evidence.layout_version = header.layout_version;
  if (header.layout_version != kSegmentLayoutVersion) return evidence;
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    read_owner(fd, header, rank, evidence.owner[static_cast<std::size_t>(rank)]);
  }
  return evidence;
}

/// A write lease is given only to the one descriptor of a file, whoever else has it open or mapped and in whatever
/// namespace. While it is held, whoever opens the file waits: it is held for some microseconds, until `fd` is closed.
bool take_lease(int fd, bool* refused_as_open) {
  if (fcntl(fd, F_SETSIG, kHarmlessSignal) != 0) return *refused_as_open = false;
  if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) return true;
  *refused_as_open = errno == EAGAIN;
  return false;
}

SegmentVerdict probe(const std::string& name, const struct stat& found, Removal removal) {
  const File file(shm_open(name.c_str(), O_RDWR, 0));
  if (file.fd() < 0) return errno == ENOENT ? SegmentVerdict{} : unclear(errno);
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return unclear(errno);
  if (info.st_dev != found.st_dev || info.st_ino != found.st_ino) {
    return {SegmentState::kTooEarly, "it was replaced just now", false};
  }
  // Two cleaners cannot both go on.
  if (removal == Removal::kIfDead && !lock_rank_byte(file.fd(), kCleanerByte)) {
    return {SegmentState::kTooEarly, "another process is about to remove it", false};
  }
  SegmentEvidence evidence = gather(name, file.fd(), info);
  SegmentVerdict verdict = judge_segment(evidence);
  if (!is_dead(verdict.state)) return verdict;

  bool refused_as_open = false;
  if (!take_lease(file.fd(), &refused_as_open)) {
    evidence.open_pid = visible_holder(name, info);
    evidence.open_by = evidence.open_pid != 0 ? OpenBy::kVisible
                       : refused_as_open      ? OpenBy::kInvisible
                                              : OpenBy::kNobodySeen;
    verdict = judge_segment(evidence);
    if (!is_dead(verdict.state)) return verdict;
  }
  if (removal == Removal::kNever) return verdict;
  struct stat again {};
  if (lstat(shm_path(name).c_str(), &again) != 0) return errno == ENOENT ? SegmentVerdict{} : unclear(errno);
  if (again.st_dev != info.st_dev || again.st_ino != info.st_ino) {
    return {SegmentState::kTooEarly, "it was replaced just now", false};
  }
  // The name still leads to what was judged: nobody makes another segment of that name before this one is gone, and
  // nobody else removes this one while the cleaner's byte is held.
  if (shm_unlink(name.c_str()) != 0 && errno != ENOENT) return unclear(errno);
  verdict.removed = true;
  return verdict;
}

}  // namespace

SegmentVerdict probe_segment(const std::string& name, Removal removal) {
  const std::lock_guard lock(mapping_registry_mutex());
  struct stat found {};
  if (lstat(shm_path(name).c_str(), &found) != 0) return errno == ENOENT ? SegmentVerdict{} : unclear(errno);
  refuse_unless_private(name, found);
  // Not opened again: closing that descriptor would drop this process's locks.
  if (registered_mapping(found.st_dev, found.st_ino)) {
    return {SegmentState::kLive, "a rank of this very process uses it"};
  }
  return probe(name, found, removal);
}

std::string remove_dead_segment(const std::string& name) {
  const SegmentVerdict verdict = probe_segment(name, Removal::kIfDead);
  return verdict.removed || verdict.state == SegmentState::kGone ? std::string() : verdict.why;
}

}  // namespace ringbell::host
