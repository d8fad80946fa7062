// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/turns.hpp"

#include <algorithm>
#include <atomic>
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

#include "device/config.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;
constexpr std::size_t kAboutBytes = 128;
constexpr std::size_t kWhyBytes = 480;
constexpr std::size_t kNameBytes = 24;
constexpr int kMostGroups = 16;
constexpr std::uint32_t kNoMoreRows = UINT32_MAX;
constexpr time_t kNapS = 1;  // of one wait; a wake-up ends it, this only bounds what a lost one costs

static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

void futex_wait(const Word& word, std::uint32_t value) noexcept {
  const timespec nap{kNapS, 0};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &nap, nullptr, 0);
}

void futex_wake(const Word& word) noexcept { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

template <std::size_t kSize>
void put_text(char (&to)[kSize], std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), size);
  to[size] = 0;
}

/// Of one placement of the row that was measured last.
struct PlaceResult {
  std::uint64_t samples;
  std::uint64_t wrong;
  std::uint64_t hash;
  std::uint64_t sent_bytes;
  std::uint32_t measured;  ///< 0: nothing else counts
  std::uint32_t checked;
  std::uint32_t hashed;
  std::uint32_t sent_as_expected;
  std::int32_t channels;
  std::uint32_t chunk_bytes;
  char algorithm[kNameBytes];
  char protocol[kNameBytes];
};

}  // namespace

/// Zeroed memory is a group that nobody has come to.
struct TurnsGroup {
  /// Turns given to it. Written by the conductor; its ranks sleep on it.
  alignas(device::kCacheLineBytes) Word given;
  std::uint32_t row;  ///< of the turn given last; written before `given`, stays until `done` has caught up
  /// By its ranks. `arrived` counts them at the end of a turn, `done` follows `given`.
  alignas(device::kCacheLineBytes) Word arrived;
  Word done;
  Word ready;  ///< 1: set up, `about` holds
  Word beats;  ///< changes as long as it moves
  /// By whoever is first to say so.
  alignas(device::kCacheLineBytes) Word failing;  ///< 1: somebody writes `why`
  Word failed;                                    ///< 1: `why` holds
  Word gone;                                      ///< 1: by the launcher
  char about[kAboutBytes];
  char why[kWhyBytes];
};

struct TurnsPage {
  alignas(device::kCacheLineBytes) Word events;  ///< counts what the conductor may wait for; it sleeps here
  TurnsGroup groups[kMostGroups];
  /// By a rank of the group that has the turn; read by the conductor after `done`. The times follow the page.
  PlaceResult places[2];
  char refusal[kWhyBytes];
};

namespace {

std::size_t page_bytes(const TurnsShape& shape) {
  return sizeof(TurnsPage) + 2 * static_cast<std::size_t>(shape.samples) * sizeof(double);
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

double* Turns::samples(int place) const noexcept {
  return reinterpret_cast<double*>(page_ + 1) + static_cast<std::uint64_t>(place) * shape_.samples;
}

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

void Turns::put(const Row& row) {
  put_text(page_->refusal, row.refusal);
  int place = 0;
  for (const auto& measured : {row.out_of_place, row.in_place}) {
    PlaceResult& result = page_->places[place];
    result = {};
    if (measured) {
      result.measured = 1;
      result.samples = std::min<std::uint64_t>(measured->samples_us.size(), shape_.samples);
      std::copy_n(measured->samples_us.begin(), result.samples, samples(place));
      result.checked = measured->wrong ? 1 : 0;
      result.wrong = measured->wrong.value_or(0);
      result.hashed = measured->hash ? 1 : 0;
      result.hash = measured->hash.value_or(0);
      result.sent_bytes = measured->sent_bytes;
      result.sent_as_expected = measured->sent_as_expected ? 1 : 0;
      result.channels = measured->path.channels;
      result.chunk_bytes = measured->path.chunk_bytes;
      put_text(result.algorithm, measured->path.algorithm);
      put_text(result.protocol, measured->path.protocol);
    }
    ++place;
  }
}

Row Turns::take(const RowPlan& plan) const {
  Row row = row_of(plan);
  row.refusal = page_->refusal;
  for (const int place : {0, 1}) {
    const PlaceResult& result = page_->places[place];
    if (result.measured == 0) continue;
    Measured measured;
    measured.samples_us.assign(samples(place), samples(place) + result.samples);
    measured.us = summarize(measured.samples_us);
    measured.round_p50_us = {measured.us.p50};
    if (result.checked != 0) measured.wrong = result.wrong;
    if (result.hashed != 0) measured.hash = result.hash;
    measured.sent_bytes = result.sent_bytes;
    measured.sent_as_expected = result.sent_as_expected != 0;
    measured.path = {result.algorithm, result.protocol, result.channels, result.chunk_bytes};
    (place == 0 ? row.out_of_place : row.in_place) = std::move(measured);
  }
  return row;
}

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
  constexpr std::chrono::seconds kLongest{20};
  const Clock::time_point end = Clock::now() + kLongest;
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

}  // namespace ringbell::tools
