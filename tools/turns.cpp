// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/turns.hpp"

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"
#include "tools/turns_page.hpp"

namespace ringbell::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kNoMoreRows = UINT32_MAX;
constexpr std::chrono::seconds kEndLimit{20};  // for the launcher to end processes
constexpr time_t kNapS = 1;                    // of one wait; a wake-up ends it, this only bounds what a lost one costs

void futex_wait(const TurnsWord& word, std::uint32_t value) noexcept {
  const timespec nap{kNapS, 0};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &nap, nullptr, 0);
}

void futex_wake(const TurnsWord& word) noexcept { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

std::size_t page_bytes(const TurnsShape& shape) {
  return sizeof(TurnsPage) + 2 * static_cast<std::size_t>(shape.samples) * sizeof(double) +
         static_cast<std::size_t>(shape.groups) * static_cast<std::size_t>(shape.rows) * sizeof(NotedPath);
}

[[noreturn]] void throw_system(const char* what) {
  throw ExitError(kExitEnvironment, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

int Turns::create_place(const TurnsShape& shape) {
  const int fd = memfd_create("ringbell-perf-turns", MFD_CLOEXEC);
  if (fd < 0) throw_system("memfd_create");
  if (ftruncate(fd, static_cast<off_t>(page_bytes(shape))) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  throw_system("ftruncate of the page where perf's groups take turns");
}

Turns::Turns(int fd, const TurnsShape& shape) : page_(nullptr), shape_(shape) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw_system("the page where perf's groups take turns");
  if (info.st_size != static_cast<off_t>(page_bytes(shape))) {
    throw ExitError(kExitEnvironment, "the page where perf's groups take turns has another size: different programs");
  }
  void* const memory = mmap(nullptr, page_bytes(shape), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw_system("mmap of the page where perf's groups take turns");
  page_ = static_cast<TurnsPage*>(memory);
}

Turns::~Turns() { munmap(page_, page_bytes(shape_)); }

TurnsGroup& Turns::group(int number) const noexcept { return page_->groups[number]; }

void Turns::wake_conductor() noexcept {
  page_->events.fetch_add(1, std::memory_order_release);
  futex_wake(page_->events);
}

void Turns::say_ready(int number, std::string_view about) {
  TurnsGroup& mine = group(number);
  put_text(mine.about, about);
  mine.ready.store(1, std::memory_order_release);
  wake_conductor();
}

std::optional<std::uint32_t> Turns::await(int number) {
  TurnsGroup& mine = group(number);
  while (mine.given.load(std::memory_order_acquire) == seen_) futex_wait(mine.given, seen_);
  ++seen_;
  if (mine.row == kNoMoreRows) return std::nullopt;
  return mine.row;
}

void Turns::beat(int number) noexcept { group(number).beats.fetch_add(1, std::memory_order_relaxed); }

void Turns::finish(int number, int ranks) {
  TurnsGroup& mine = group(number);
  if (mine.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 != static_cast<std::uint32_t>(ranks)) return;
  mine.arrived.store(0, std::memory_order_relaxed);
  mine.done.store(mine.given.load(std::memory_order_relaxed), std::memory_order_release);
  wake_conductor();
}

void Turns::fail(int number, std::string_view why) noexcept {
  TurnsGroup& one = group(number);
  std::uint32_t nobody = 0;
  if (!one.failing.compare_exchange_strong(nobody, 1, std::memory_order_acq_rel)) return;
  put_text(one.why, why);
  one.failed.store(1, std::memory_order_release);
  wake_conductor();
}

bool Turns::failed(int number) const noexcept {
  return group(number).failed.load(std::memory_order_acquire) != 0 ||
         group(number).gone.load(std::memory_order_acquire) != 0;
}

std::string Turns::why(int number) const {
  const TurnsGroup& one = group(number);
  // Who was killed while writing it leaves no text.
  return one.failed.load(std::memory_order_acquire) != 0 ? one.why : "it ended before its time";
}

std::string Turns::about(int number) const { return group(number).about; }

// A group that failed gets time to be ended by the launcher: while it lives it would disturb the others.
bool Turns::end_failed(int number) {
  const Clock::time_point end = Clock::now() + kEndLimit;
  while (Clock::now() < end) {
    const std::uint32_t before = page_->events.load(std::memory_order_acquire);
    if (group(number).gone.load(std::memory_order_acquire) != 0) break;
    futex_wait(page_->events, before);
  }
  return false;
}

bool Turns::wait_ready(int number, double limit_s) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const std::uint32_t before = page_->events.load(std::memory_order_acquire);
    if (failed(number)) return end_failed(number);
    if (group(number).ready.load(std::memory_order_acquire) != 0) return true;
    if (limit_s > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > limit_s) {
      fail(number, "not set up after " + std::to_string(static_cast<long>(limit_s)) + " s");
    } else {
      futex_wait(page_->events, before);
    }
  }
}

void Turns::wait_probe(int number, double limit_s) {
  TurnsGroup& one = group(number);
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const std::uint32_t before = page_->events.load(std::memory_order_acquire);
    if (one.probing.load(std::memory_order_acquire) == 0) return;
    const double waited_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (waited_s > limit_s) one.probe_unwanted.store(1, std::memory_order_release);
    if (waited_s > limit_s + static_cast<double>(kEndLimit.count())) return;
    futex_wait(page_->events, before);
  }
}

void Turns::give(int number, std::uint32_t row) {
  TurnsGroup& one = group(number);
  one.row = row;
  one.given.fetch_add(1, std::memory_order_release);
  futex_wake(one.given);
}

bool Turns::wait_finished(int number, double limit_s) {
  TurnsGroup& one = group(number);
  std::uint32_t beats = one.beats.load(std::memory_order_relaxed);
  Clock::time_point moved = Clock::now();
  for (;;) {
    const std::uint32_t before = page_->events.load(std::memory_order_acquire);
    if (one.done.load(std::memory_order_acquire) == one.given.load(std::memory_order_relaxed)) return true;
    if (failed(number)) return end_failed(number);
    if (const std::uint32_t now = one.beats.load(std::memory_order_relaxed); now != beats) {
      beats = now;
      moved = Clock::now();
    }
    if (limit_s > 0 && std::chrono::duration<double>(Clock::now() - moved).count() > limit_s) {
      fail(number, "did not go on for " + std::to_string(static_cast<long>(limit_s)) + " s");
    } else {
      futex_wait(page_->events, before);
    }
  }
}

void Turns::close() {
  for (int number = 0; number < shape_.groups; ++number) give(number, kNoMoreRows);
}

void Turns::gone(int number, std::string_view why) noexcept {
  if (!why.empty()) fail(number, why);
  group(number).gone.store(1, std::memory_order_release);
  wake_conductor();
}

void Turns::probe_begins(int number) noexcept { group(number).probing.store(1, std::memory_order_release); }

void Turns::probe_ended(int number) noexcept {
  group(number).probing.store(0, std::memory_order_release);
  wake_conductor();
}

bool Turns::probe_unwanted(int number) const noexcept {
  return group(number).probe_unwanted.load(std::memory_order_acquire) != 0;
}

}  // namespace ringbell::tools
