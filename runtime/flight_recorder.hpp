// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The last 256 host-issued calls of a rank: what was asked, when, and what became of it. Written by submit and by
// whoever sees a completion, a line of stores each; read when something broke (flight_dump.hpp).
//
// It lies in process memory and not in the segment: a dump is made by the process itself, the segment's layout and size
// stay what peers agreed on, and what a process that was killed had queued stands in its queue in the segment anyway,
// where `ringbell why` reads it.
#ifndef RINGBELL_RUNTIME_FLIGHT_RECORDER_HPP_
#define RINGBELL_RUNTIME_FLIGHT_RECORDER_HPP_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "device/layout/command.hpp"
#include "host/tick_clock.hpp"

namespace ringbell {

/// A call as it was recorded.
struct FlightRecord {
  std::uint64_t seq = 0;
  device::Command command{};       ///< without `in` and `out`: they mean nothing elsewhere
  std::uint64_t submitted_ns = 0;  ///< CLOCK_MONOTONIC
  std::uint64_t seen_ns = 0;       ///< when the host saw it complete; 0: nobody has looked
  Status status = Status::kPending;
};

class FlightRecorder {
 public:
  static constexpr std::size_t kRecords = 256;

  /// One thread at a time, in order of `seq`. @param ticks host::read_ticks()
  void submitted(std::uint64_t seq, const device::Command& command, std::uint64_t ticks) noexcept {
    Entry& entry = entries_[seq % kRecords];
    put(entry.number, 0);  // half of two calls is nobody's
    std::atomic_thread_fence(std::memory_order_release);
    put(entry.submitted_ticks, ticks);
    put(entry.count, command.count);
    put(entry.tag, command.tag);
    put(entry.what, pack(command));
    entry.number.store(seq + 1, std::memory_order_release);  // edge FLIGHT: release
  }

  /// Any thread; only the first for a call counts. A record that was overwritten meanwhile stays as it is.
  void completed(std::uint64_t seq, Status status) noexcept {
    Entry& entry = entries_[seq % kRecords];
    const std::uint64_t word = device::completion_word(seq, status);
    if (entry.seen.load(std::memory_order_relaxed) == word) return;
    if (entry.number.load(std::memory_order_relaxed) != seq + 1) return;
    put(entry.seen_ticks, host::read_ticks());
    put(entry.seen, word);
  }

  /// In order; what is being written meanwhile is left out.
  [[nodiscard]] std::vector<FlightRecord> records() const;

 private:
  // relaxed: a record is for reading after the fact; a reader takes none whose number changed meanwhile.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> number{0};  // seq + 1; 0: none
    std::atomic<std::uint64_t> submitted_ticks{0};
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> tag{0};
    std::atomic<std::uint64_t> what{0};
    std::atomic<std::uint64_t> seen_ticks{0};
    std::atomic<std::uint64_t> seen{0};  // completion_word of the call that it is about
  };
  static_assert(sizeof(Entry) == 64);

  static void put(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
    word.store(value, std::memory_order_relaxed);
  }
  static std::uint64_t pack(const device::Command& c) noexcept {
    return static_cast<std::uint64_t>(c.kind) | static_cast<std::uint64_t>(c.dtype) << 8 |
           static_cast<std::uint64_t>(c.op) << 16 | static_cast<std::uint64_t>(c.algorithm) << 24 |
           static_cast<std::uint64_t>(c.protocol) << 32 | static_cast<std::uint64_t>(c.channels) << 40;
  }

  host::TickClock clock_;
  std::array<Entry, kRecords> entries_;
};

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_FLIGHT_RECORDER_HPP_
