// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/meeting.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "device/config.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

constexpr std::size_t kValuesPerTurn = 4096;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace

/// Zeroed memory is a meeting that nobody has come to.
struct MeetingPage {
  alignas(device::kCacheLineBytes) std::atomic<std::uint32_t> arrived;
  alignas(device::kCacheLineBytes) std::atomic<std::uint32_t> generation;  ///< barriers completed
  alignas(device::kCacheLineBytes) std::atomic<std::int32_t> failed;       ///< exit code of the first rank that failed
  /// Written by its rank between two barriers, read by all after the second.
  alignas(device::kCacheLineBytes) std::uint64_t values[device::kMaxRanks][kValuesPerTurn];
};

namespace {

[[noreturn]] void throw_system(const char* what) {
  throw ExitError(kExitEnvironment, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

int Meeting::create_place() {
  const int fd = memfd_create("ringbell-perf", MFD_CLOEXEC);
  if (fd < 0) throw_system("memfd_create");
  if (ftruncate(fd, sizeof(MeetingPage)) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    throw_system("ftruncate of perf's shared page");
  }
  return fd;
}

Meeting::Meeting(int fd, int rank, int world, double limit_s)
    : page_(nullptr), rank_(rank), world_(world), limit_s_(limit_s) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw_system("perf's shared page");
  if (info.st_size != static_cast<off_t>(sizeof(MeetingPage))) {
    throw ExitError(kExitEnvironment, "perf's shared page has another size: the ranks run different programs");
  }
  void* const memory = mmap(nullptr, sizeof(MeetingPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) throw_system("mmap of perf's shared page");
  page_ = static_cast<MeetingPage*>(memory);
}

Meeting::~Meeting() { munmap(page_, sizeof(MeetingPage)); }

void Meeting::barrier() {
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 2000;
  const std::uint32_t before = page_->generation.load(std::memory_order_acquire);
  if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(world_)) {
    page_->arrived.store(0, std::memory_order_relaxed);
    page_->generation.store(before + 1, std::memory_order_release);
    return;
  }
  Clock::time_point begin{};
  for (int turn = 0; page_->generation.load(std::memory_order_acquire) == before; ++turn) {
    if (turn < kSpins) {
      pause_core();
      continue;
    }
    if (const int code = page_->failed.load(std::memory_order_acquire)) throw ExitError(code, "");
    const Clock::time_point now = Clock::now();
    if (begin == Clock::time_point{}) begin = now;
    const std::chrono::duration<double> waited = now - begin;
    if (limit_s_ > 0 && waited.count() > limit_s_) {
      fail(kExitLost);
      throw ExitError(kExitLost, "the other ranks did not come to the next call in " +
                                     std::to_string(static_cast<long>(limit_s_)) + " s");
    }
    // Long waits are for a rank that fills or checks its buffers: leave it the core.
    if (waited.count() < 1e-3) {
      sched_yield();
    } else {
      const timespec nap{0, 50'000};
      nanosleep(&nap, nullptr);
    }
  }
}

std::vector<std::uint64_t> Meeting::gather(std::uint64_t mine) {
  page_->values[rank_][0] = mine;
  barrier();
  std::vector<std::uint64_t> all;
  for (int rank = 0; rank < world_; ++rank) all.push_back(page_->values[rank][0]);
  barrier();
  return all;
}

std::uint64_t Meeting::sum(std::uint64_t mine) {
  std::uint64_t total = 0;
  for (const std::uint64_t value : gather(mine)) total += value;
  return total;
}

bool Meeting::all_equal(std::uint64_t mine) {
  const std::vector<std::uint64_t> all = gather(mine);
  return std::all_of(all.begin(), all.end(), [&](std::uint64_t value) { return value == all.front(); });
}

void Meeting::maximum(std::vector<std::uint64_t>& values) {
  for (std::size_t begin = 0; begin < values.size(); begin += kValuesPerTurn) {
    const std::size_t count = std::min(kValuesPerTurn, values.size() - begin);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), count, page_->values[rank_]);
    barrier();
    for (int rank = 0; rank < world_; ++rank) {
      for (std::size_t i = 0; i < count; ++i) values[begin + i] = std::max(values[begin + i], page_->values[rank][i]);
    }
    barrier();
  }
}

void Meeting::fail(int exit_code) noexcept {
  std::int32_t none = 0;
  page_->failed.compare_exchange_strong(none, exit_code, std::memory_order_acq_rel);
}

}  // namespace ringbell::tools
