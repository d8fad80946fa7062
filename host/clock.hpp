// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The one clock (CLOCK_MONOTONIC, the same for every process of a machine), deadlines on it, and a nap.
#ifndef RINGBELL_HOST_CLOCK_HPP_
#define RINGBELL_HOST_CLOCK_HPP_

#include <cstdint>
#include <limits>

#include <time.h>

namespace ringbell::host {

inline constexpr std::uint64_t kNanosPerSecond = 1'000'000'000;

/// @return CLOCK_MONOTONIC in nanoseconds; never 0.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kNanosPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

/// @param nanos below a second
inline void sleep_ns(long nanos) noexcept {
  const timespec pause{0, nanos};
  nanosleep(&pause, nullptr);
}

/// A point on the monotonic clock. Seconds of 0 mean "wait for ever", as everywhere in the configuration.
class Deadline {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  static Deadline never() noexcept { return Deadline(kNever); }
  static Deadline after_ns(std::uint64_t nanos) noexcept {
    const std::uint64_t now = monotonic_ns();
    return Deadline(nanos >= kNever - now ? kNever : now + nanos);
  }
  /// 0 (and anything not above it) is never; more than a century is never too.
  static Deadline after_seconds(double seconds) noexcept {
    constexpr double kLongest = 4e9;
    if (!(seconds > 0) || seconds > kLongest) return never();
    return after_ns(static_cast<std::uint64_t>(seconds * static_cast<double>(kNanosPerSecond)));
  }

  [[nodiscard]] bool is_never() const noexcept { return at_ns_ == kNever; }
  [[nodiscard]] bool expired() const noexcept { return !is_never() && monotonic_ns() >= at_ns_; }
  [[nodiscard]] std::uint64_t at_ns() const noexcept { return at_ns_; }
  /// @return nanoseconds left, 0 when expired, kNever for never().
  [[nodiscard]] std::uint64_t remaining_ns() const noexcept {
    if (is_never()) return kNever;
    const std::uint64_t now = monotonic_ns();
    return now >= at_ns_ ? 0 : at_ns_ - now;
  }

 private:
  explicit Deadline(std::uint64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::uint64_t at_ns_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CLOCK_HPP_
