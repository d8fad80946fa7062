// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Creating and opening a segment's file. What is under the name already is host/segment_name.cpp.
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/process_identity.hpp"
#include "host/rank_in_set_up.hpp"
#include "host/segment.hpp"
#include "host/segment_name.hpp"
#include "host/segment_probe.hpp"
#include "host/shared_mapping.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

namespace bip = boost::interprocess;

constexpr long kRetryNs = 1'000'000;
// A job that was killed and started again at once may still see its old ranks die.
constexpr std::uint64_t kOldOwnerGraceNs = 2'000'000'000;

double seconds_since(std::uint64_t start_ns) noexcept {
  return static_cast<double>(monotonic_ns() - start_ns) / static_cast<double>(kNanosPerSecond);
}

void refuse_file_size_limit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    // ftruncate beyond it would kill the process by SIGXFSZ.
    throw_error(Status::kSystem,
                fmt::format("the segment needs {}, the file size limit of this process is {}", bytes_text(bytes),
                            bytes_text(limit.rlim_cur)),
                "raise it: ulimit -f unlimited");
  }
}

void fill_header(SegmentHeader& header, const SegmentExpectation& expected) {
  const ProcessIdentity me = self_identity();
  header.layout_version = kSegmentLayoutVersion;
  header.header_bytes = sizeof(SegmentHeader);
  header.total_bytes = segment_bytes(expected.world, expected.geometry);
  header.control_bytes = expected.geometry.control_bytes;
  header.window_bytes = expected.geometry.window_bytes;
  header.world = static_cast<std::uint32_t>(expected.world);
  header.uid = me.uid;
  const Token token = unique_id_token(expected.id);
  std::memcpy(header.token, token.data(), token.size());
  do {
    random_bytes(&header.nonce, sizeof header.nonce);
  } while (header.nonce == 0);
  std::memcpy(header.boot_id, me.boot_id.data(), me.boot_id.size());
  header.shm_device = me.shm_device;
  for (std::size_t i = 0; i < expected.sources.size(); ++i) {
    expected.sources[i].value.copy(header.size_source[i], kSizeSourceChars - 1);
  }
  header.creator_pid = me.pid;
  // edge SEGMENT_READY: release; the openers see the whole header once they see the magic
  std::atomic_ref(header.magic).store(kSegmentMagic, std::memory_order_release);
}

/// The new file, or null when the name exists.
std::shared_ptr<SharedMapping> try_create(const SegmentExpectation& expected) {
  const std::lock_guard lock(mapping_registry_mutex());
  bip::shared_memory_object object;
  try {
    object =
        bip::shared_memory_object(bip::create_only, expected.name.c_str(), bip::read_write, bip::permissions(0600));
  } catch (const bip::interprocess_exception& error) {
    const int code = error.get_native_error();
    if (code == EEXIST) return nullptr;
    const char* remedy = "see `ls -ld /dev/shm`";
    if (code == ENOENT || code == ENOSYS) remedy = "mount a tmpfs there: mount -t tmpfs tmpfs /dev/shm";
    if (code == ENOSPC) remedy = "/dev/shm has no free file entries: see `df -i /dev/shm`";
    if (code == EROFS) remedy = "/dev/shm is mounted read-only: mount -o remount,rw /dev/shm as root";
    if (code == EACCES) remedy = "/dev/shm must be writable: chmod 1777 /dev/shm as root";
    if (code == EMFILE || code == ENFILE) remedy = "raise the limit of open files: ulimit -n";
    throw_errno("shm_open", expected.name, remedy, code);
  }
  try {
    const int fd = object.get_mapping_handle().handle;
    const std::size_t bytes = segment_bytes(expected.world, expected.geometry);
    if (!lock_rank_byte(fd, 0)) throw_errno("fcntl(F_SETLK)", expected.name, "/dev/shm must support file locks");
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw_errno("ftruncate", expected.name);
    reserve_pages(fd, 0, card_offset(expected.world), bytes);
    struct stat info {};
    if (fstat(fd, &info) != 0) throw_errno("fstat", expected.name);
    auto mapping = std::make_shared<SharedMapping>(std::move(object), info);
    fill_header(*reinterpret_cast<SegmentHeader*>(mapping->base()), expected);
    register_mapping(mapping);
    return mapping;
  } catch (const bip::interprocess_exception& error) {
    shm_unlink(expected.name.c_str());
    throw_errno("mmap", expected.name, "the address space or memory limit is too small: ulimit -v",
                error.get_native_error());
  } catch (...) {
    shm_unlink(expected.name.c_str());
    throw;
  }
}

std::string disagreement_text(const SegmentExpectation& expected, std::string_view field, std::string_view theirs,
                              std::string_view ours, std::string_view remedy) {
  return fmt::format("rank 0 made segment {} with {} {}, rank {} has {}; {}", expected.name, field, theirs,
                     expected.rank, ours, remedy);
}

/// A segment that is complete and alive must be of this session.
void refuse_another_session(const SegmentHeader& header, std::uint64_t file_bytes, const SegmentExpectation& expected) {
  if (header.layout_version != kSegmentLayoutVersion || header.header_bytes != sizeof(SegmentHeader)) {
    throw_error(
        Status::kInvalidArgument,
        disagreement_text(expected, "layout version", fmt::format("{}", header.layout_version),
                          fmt::format("{}", kSegmentLayoutVersion), "use one version of ringbell on all ranks"));
  }
  const Token token = unique_id_token(expected.id);
  if (std::memcmp(header.token, token.data(), token.size()) != 0) {
    throw_error(Status::kInvalidArgument,
                disagreement_text(expected, "token", to_hex(header.token, sizeof header.token),
                                  to_hex(token.data(), token.size()),
                                  "two different ids share a name by chance: make a new id"));
  }
  const ProcessIdentity me = self_identity();
  const std::string their_boot = to_hex(header.boot_id, sizeof header.boot_id);
  const std::string our_boot = to_hex(me.boot_id.data(), me.boot_id.size());
  if (header.uid != me.uid || their_boot != our_boot) {
    throw_error(Status::kInvalidArgument,
                disagreement_text(expected, "uid and boot id", fmt::format("{} {}", header.uid, their_boot),
                                  fmt::format("{} {}", me.uid, our_boot), "run all ranks as one user on one machine"));
  }
  if (header.total_bytes != file_bytes) {
    throw_error(
        Status::kSystem,
        fmt::format("segment {} is {} bytes long, its header says {}", expected.name, file_bytes, header.total_bytes),
        "somebody changed it; start all ranks again");
  }
}

/// What this rank and rank 0 of its session do not agree on; empty when they agree.
std::string find_disagreement(const SegmentHeader& header, const SegmentExpectation& expected) {
  if (header.world != static_cast<std::uint32_t>(expected.world)) {
    return disagreement_text(expected, "world", fmt::format("{}", header.world), fmt::format("{}", expected.world),
                             "give all ranks the same world");
  }
  for (std::size_t i = 0; i < expected.sources.size(); ++i) {
    const SizeSource& source = expected.sources[i];
    const std::string theirs(header.size_source[i], strnlen(header.size_source[i], kSizeSourceChars));
    if (theirs != source.value) return disagreement_text(expected, source.name, theirs, source.value, source.remedy);
  }
  const std::string theirs = fmt::format("{} + {}", header.control_bytes, header.window_bytes);
  const std::string ours = fmt::format("{} + {}", expected.geometry.control_bytes, expected.geometry.window_bytes);
  if (theirs == ours) return {};
  return disagreement_text(expected, "control + window bytes per rank", theirs, ours,
                           "give all ranks the same configuration (queue depth, slot bytes, channels, device)");
}

/// Ranks that agree on everything have one idea of the size: a file of another one would be SIGBUS for whoever goes on.
void refuse_other_size(const SegmentExpectation& expected, std::uint64_t file_bytes) {
  const std::uint64_t needed = segment_bytes(expected.world, expected.geometry);
  if (file_bytes == needed) return;
  throw_error(
      Status::kSystem,
      fmt::format("segment {} is {} bytes long, {} ranks need {}", expected.name, file_bytes, expected.world, needed),
      "somebody changed it; start all ranks again");
}

/// Tells the ranks that wait for this one why it does not come. The first note stays.
void leave_note(RefusalNote& note, std::string_view text) noexcept {
  const std::atomic_ref state(note.state);
  auto none = static_cast<std::uint64_t>(Refusal::kNone);
  if (!state.compare_exchange_strong(none, static_cast<std::uint64_t>(Refusal::kBeingWritten))) return;
  note.text[text.copy(note.text, sizeof note.text - 1)] = 0;
  // edge REFUSAL: release; the text was written before
  state.store(static_cast<std::uint64_t>(Refusal::kWritten), std::memory_order_release);
}

[[noreturn]] void refuse(SegmentHeader& header, const std::string& text) {
  leave_note(header.refusal, text);
  throw_error(Status::kInvalidArgument, text);
}

/// One look at the name. Null: not there yet, `state` says what was seen.
std::shared_ptr<SharedMapping> try_open(const SegmentExpectation& expected, std::string& state) {
  const std::lock_guard lock(mapping_registry_mutex());
  struct stat info {};
  if (lstat(shm_path(expected.name).c_str(), &info) != 0) {
    if (errno != ENOENT) throw_errno("lstat", shm_path(expected.name));
    state = "nothing has that name";
    return nullptr;
  }
  refuse_unless_private(expected.name, info);
  if (auto mapping = registered_mapping(info.st_dev, info.st_ino)) {
    auto& header = *reinterpret_cast<SegmentHeader*>(mapping->base());
    refuse_another_session(header, mapping->bytes(), expected);
    if (const std::string text = find_disagreement(header, expected); !text.empty()) refuse(header, text);
    return mapping;
  }

  bip::shared_memory_object object;
  try {
    object = bip::shared_memory_object(bip::open_only, expected.name.c_str(), bip::read_write);
  } catch (const bip::interprocess_exception& error) {
    if (error.get_native_error() == ENOENT) {
      state = "nothing has that name";
      return nullptr;
    }
    throw_errno("shm_open", expected.name, "see `ls -l /dev/shm`", error.get_native_error());
  }
  const int fd = object.get_mapping_handle().handle;
  if (fstat(fd, &info) != 0) throw_errno("fstat", expected.name);
  refuse_unless_private(expected.name, info);

  // By pread, not through a mapping: reading a hole that the creator has not reserved would allocate a page, or SIGBUS.
  SegmentHeader header{};
  const ssize_t got = pread(fd, &header, sizeof header, 0);
  if (got < 0) throw_errno("pread", expected.name);
  if (static_cast<std::size_t>(got) < sizeof header.magic || header.magic == 0) {
    state = "a half-made segment is there (its maker is still at it, or died)";
    return nullptr;
  }
  if (header.magic != kSegmentMagic) throw_not_a_segment(expected.name, header.magic);
  // A fresh heartbeat is no excuse here: rank 0 may have died this instant. If it lives, it takes its lock again soon.
  if (rank_byte_is_free(fd, 0)) {
    state = fmt::format("a leftover of a dead rank 0 (pid {}) is there", header.creator_pid);
    return nullptr;
  }
  refuse_another_session(header, static_cast<std::uint64_t>(info.st_size), expected);
  try {
    if (const std::string text = find_disagreement(header, expected); !text.empty()) {
      const bip::mapped_region page(object, bip::read_write, 0, sizeof(SegmentHeader));
      refuse(*static_cast<SegmentHeader*>(page.get_address()), text);
    }
    refuse_other_size(expected, static_cast<std::uint64_t>(info.st_size));
    auto mapping = std::make_shared<SharedMapping>(std::move(object), info);
    // edge SEGMENT_READY: acquire; pread has shown the magic, this orders the reads through the mapping after it
    static_cast<void>(
        std::atomic_ref(reinterpret_cast<SegmentHeader*>(mapping->base())->magic).load(std::memory_order_acquire));
    register_mapping(mapping);
    return mapping;
  } catch (const bip::interprocess_exception& error) {
    throw_errno("mmap", expected.name, "the address space or memory limit is too small: ulimit -v",
                error.get_native_error());
  }
}

}  // namespace

void reserve_pages(int fd, std::size_t offset, std::size_t bytes, std::size_t total_bytes) {
  if (bytes == 0) return;
  int error;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0) return;
  struct statvfs free {};
  const bool known = fstatvfs(fd, &free) == 0;
  const unsigned long long free_bytes = known ? static_cast<unsigned long long>(free.f_bavail) * free.f_frsize : 0;
  if (error == ENOSPC) {
    throw_error(
        Status::kSystem,
        fmt::format("/dev/shm is too small: this rank needs {} now, the whole session {}, free are {}",
                    bytes_text(bytes), bytes_text(total_bytes), bytes_text(free_bytes)),
        fmt::format(
            "enlarge it (mount -o remount,size={}m /dev/shm as root, docker run --shm-size={}m), remove what "
            "fills it (ringbell clean, ls -l /dev/shm), or use smaller slots (RINGBELL_SLOT_BYTES, ringbell perf "
            "--chunk)",
            (total_bytes >> 20) + 64, (total_bytes >> 20) + 64));
  }
  throw_errno("posix_fallocate", fmt::format("{} in /dev/shm", bytes_text(bytes)), "", error);
}

std::shared_ptr<SharedMapping> create_segment_file(const SegmentExpectation& expected, Deadline deadline) {
  refuse_file_size_limit(segment_bytes(expected.world, expected.geometry));
  const std::uint64_t start_ns = monotonic_ns();
  while (true) {
    if (auto mapping = try_create(expected)) return mapping;
    const std::string why = remove_dead_segment(expected.name);
    if (why.empty()) continue;
    if (monotonic_ns() - start_ns > kOldOwnerGraceNs || deadline.expired()) {
      throw_error(Status::kSystem, fmt::format("{} exists and was not removed: {}", shm_path(expected.name), why),
                  fmt::format("rank 0 was started twice, or another job uses the same session: give each job its own "
                              "RINGBELL_SESSION or id; `ringbell clean` tells what uses it; if nothing does: rm {}",
                              shm_path(expected.name)));
    }
    sleep_ns(20 * kRetryNs);
  }
}

std::shared_ptr<SharedMapping> open_segment_file(const SegmentExpectation& expected, Deadline deadline) {
  const std::uint64_t start_ns = monotonic_ns();
  std::string state;
  while (true) {
    if (auto mapping = try_open(expected, state)) return mapping;
    if (expected.set_up.is_doubled() && monotonic_ns() - start_ns > kLingerNs) {
      const std::uint32_t me = self_identity().pid;
      throw_error(Status::kInvalidArgument, double_claim_text(expected.rank, me, me, true));
    }
    if (deadline.expired()) {
      throw_error(
          Status::kTimeout,
          fmt::format("rank {} waited {:.1f} s for rank 0 to make segment {}: {}", expected.rank,
                      seconds_since(start_ns), expected.name, state),
          "see whether rank 0 started, on this machine, as this user and with the same id; a slow start needs a "
          "larger RINGBELL_INIT_TIMEOUT_S");
    }
    sleep_ns(kRetryNs);
  }
}

}  // namespace ringbell::host
