// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/flight_recorder.hpp"

#include <algorithm>

namespace ringbell {

std::vector<FlightRecord> FlightRecorder::records() const {
  const host::TickClock::Line line = clock_.line();
  std::vector<FlightRecord> records;
  records.reserve(kRecords);
  for (const Entry& entry : entries_) {
    const auto get = [](const std::atomic<std::uint64_t>& word) { return word.load(std::memory_order_relaxed); };
    const std::uint64_t number = entry.number.load(std::memory_order_acquire);  // edge FLIGHT: acquire
    if (number == 0) continue;
    FlightRecord record;
    record.seq = number - 1;
    record.command.count = get(entry.count);
    record.command.tag = get(entry.tag);
    const std::uint64_t what = get(entry.what);
    record.command.kind = static_cast<device::CommandKind>(what & 0xff);
    record.command.dtype = static_cast<DType>(what >> 8 & 0xff);
    record.command.op = static_cast<ReduceOp>(what >> 16 & 0xff);
    record.command.algorithm = static_cast<Algorithm>(what >> 24 & 0xff);
    record.command.protocol = static_cast<Protocol>(what >> 32 & 0xff);
    record.command.channels = static_cast<std::uint16_t>(what >> 40);
    record.submitted_ns = line.monotonic_ns(get(entry.submitted_ticks));
    const std::uint64_t seen = get(entry.seen);
    if (device::completion_count(seen) == number) {
      record.status = device::completion_status(seen);
      record.seen_ns = line.monotonic_ns(get(entry.seen_ticks));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (get(entry.number) == number) records.push_back(record);
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.seq < b.seq; });
  return records;
}

}  // namespace ringbell
