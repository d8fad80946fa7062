// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of a rank that are launched on streams: their numbers, their order, and what became of them. Which kernel
// and which stream is the executor's.
#ifndef RINGBELL_RUNTIME_STREAM_CALLS_HPP_
#define RINGBELL_RUNTIME_STREAM_CALLS_HPP_

#include <atomic>
#include <mutex>
#include <optional>

#include "device/layout/control.hpp"
#include "host/executor.hpp"

namespace ringbell {

class StreamCalls {
 public:
  /// Both must outlive this.
  StreamCalls(host::Executor& executor, const device::ControlBlock* control)
      : executor_(executor), records_(control->way[device::kStreamWay]) {}

  /// Puts the call on `stream`. Any thread; the order of these calls is the communicator's order of stream calls.
  Status issue(Stream stream, const device::Command& command) noexcept;
  /// Numbers given so far.
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_.load(std::memory_order_relaxed); }
  /// A launched call has waited for longer than a millisecond and still does.
  [[nodiscard]] bool is_waiting() const noexcept;
  /// Why launched calls have ended here. Told to everybody who asks: two threads may find it at once, and none may go
  /// on as if there were nothing while the other still tells it.
  [[nodiscard]] std::optional<device::WaitRecord> failure() const noexcept;

 private:
  host::Executor& executor_;
  const device::WayRecords& records_;
  std::mutex mutex_;                      // one call at a time
  std::atomic<std::uint64_t> issued_{0};  // written under mutex_
};

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_STREAM_CALLS_HPP_
