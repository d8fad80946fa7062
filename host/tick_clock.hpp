// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The processor's own counter: what a path that may not cost a clock call stamps its records with. Ticks become
// nanoseconds of CLOCK_MONOTONIC (host/clock.hpp) when somebody reads them.
#ifndef RINGBELL_HOST_TICK_CLOCK_HPP_
#define RINGBELL_HOST_TICK_CLOCK_HPP_

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "host/clock.hpp"

namespace ringbell::host {

/// Runs at one constant rate on all cores. Not ordered with the loads and stores around it, which is why it is cheap.
inline std::uint64_t read_ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return monotonic_ns();
#endif
}

/// Ticks to nanoseconds: a line through two looks at both clocks, the first when this is made.
class TickClock {
 public:
  TickClock() noexcept : ticks_(read_ticks()), ns_(monotonic_ns()) {}

  class Line {
   public:
    Line(std::uint64_t ticks, std::uint64_t ns, double ns_per_tick) noexcept
        : ticks_(ticks), ns_(ns), ns_per_tick_(ns_per_tick) {}
    /// @param ticks before or after the look
    [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t ticks) const noexcept {
      const double ns = static_cast<double>(static_cast<std::int64_t>(ticks - ticks_)) * ns_per_tick_;
      return ns_ + static_cast<std::uint64_t>(static_cast<std::int64_t>(ns));
    }

   private:
    std::uint64_t ticks_;
    std::uint64_t ns_;
    double ns_per_tick_;
  };
  /// The second look. One of these converts many.
  [[nodiscard]] Line line() const noexcept {
    const std::uint64_t ticks = read_ticks();
    const std::uint64_t ns = monotonic_ns();
    const double rate = ticks == ticks_ ? 1
                                        : static_cast<double>(ns - ns_) /
                                              static_cast<double>(static_cast<std::int64_t>(ticks - ticks_));
    return {ticks, ns, rate};
  }

 private:
  std::uint64_t ticks_;
  std::uint64_t ns_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_TICK_CLOCK_HPP_
