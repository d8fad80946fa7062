// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's half of a rank's queue: submit, completion, launch and park. Knows the worker's states and an executor
// that can launch; knows nothing of set-up or peers.
#ifndef RINGBELL_RUNTIME_CALL_QUEUE_HPP_
#define RINGBELL_RUNTIME_CALL_QUEUE_HPP_

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/worker/context.hpp"
#include "host/clock.hpp"
#include "host/executor.hpp"
#include "runtime/flight_recorder.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell {

struct CallQueueLimits {
  std::uint32_t depth = 64;
  unsigned spins_before_yield = 64;
  std::uint64_t timeout_ns = 0;  ///< a launched worker must run, and a parked one come back, within it; 0: for ever
  unsigned rank = 0;             ///< named in errors
  bool resident = true;          ///< false: the worker leaves after every call, and hold() does not keep it
};

/// Of a command that comes after a point in a stream.
using After = std::optional<Stream>;

/// The newest error that has no text yet: it costs nothing until last_error() asks for it.
enum class QueueNote : std::uint8_t {
  kNone,
  kFull,           ///< a submit found no room
  kKeptAway,       ///< a wait ended because this rank itself keeps the worker parked
  kUnknownTicket,  ///< a ticket that this queue has not given
  kStaleTicket,    ///< a ticket whose completion was overwritten
  kNoCall,         ///< a ticket under which nothing was queued
};

class CallQueue {
 public:
  /// All must outlive this. `context` has host pointers to control block, queue and completions.
  CallQueue(host::Executor& executor, device::ControlBlock* control, device::CommandSlot* queue,
            device::Completion* completions, const CallQueueLimits& limits);

  /// Queues all commands, in order, or none. @return kOk, kAgain when there is no room, or what broke the queue.
  /// @param afters null: all are ready. Else one each; the streams have been checked
  Status submit(std::span<const device::Command> commands, Ticket* tickets, const After* afters = nullptr) noexcept;
  Status test(const Ticket& ticket) noexcept;
  /// kAgain at the deadline, and when a scope of this rank has kept the worker away for timeout_ns of the wait.
  Status wait(const Ticket& ticket, host::Deadline deadline) noexcept;

  Status hold() noexcept;
  Status release() noexcept;
  Status park(host::Deadline deadline) noexcept;
  Status park_and_stay(host::Deadline deadline) noexcept;
  void unpark() noexcept;

  /// From any thread: the worker ends what it does, tells the peers, and never runs again.
  /// @param code device::abort_code
  void abort(std::uint64_t code, const std::string& why) noexcept;
  /// The device failed: nothing will ever be written by the worker again.
  void fail(Status status, const std::string& why) noexcept;
  /// The driver did not take something; the device may be well. Breaks the queue, and the worker ends what it does.
  void driver_refused() noexcept;
  /// Asks the worker to leave for good; true when it is at rest before the deadline.
  bool stop(host::Deadline deadline) noexcept;

  /// Launches the worker if commands wait and nobody else does it. @return true while something is outstanding
  bool keep_going() noexcept;
  /// After an abort, from the service thread: launches a worker that has parked, until one has told the peers, inside
  /// scopes too. That one looks at the abort word before all else and leaves, so it keeps no GPU. @return true while
  /// it must be asked again
  bool relay_abort() noexcept;
  /// A stream has still to store into this queue: its memory must stay, broken or not.
  bool stores_pending() noexcept;

  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire) != Status::kOk; }
  [[nodiscard]] Status broken_status() const noexcept { return broken_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string broken_text() const;
  /// `told` runs once, on the thread that finds what breaks the queue, with the status and its text. It may call
  /// nothing of this queue but recorder() and submitted(). Set before the first submit.
  void when_broken(std::function<void(Status, const std::string&)> told) { when_broken_ = std::move(told); }
  [[nodiscard]] const FlightRecorder& recorder() const noexcept { return recorder_; }
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_relaxed); }
  [[nodiscard]] QueueNote note() const noexcept { return note_.load(std::memory_order_relaxed); }
  /// The call that the note is about; of no meaning for kFull and kNoCall.
  [[nodiscard]] std::uint64_t note_seq() const noexcept { return note_seq_.load(std::memory_order_relaxed); }
  void forget_note() noexcept { note_.store(QueueNote::kNone, std::memory_order_relaxed); }
  [[nodiscard]] Stats stats() noexcept;
  /// Of a call that did not go through this queue.
  void note_path(const Path& path) noexcept {
    const std::lock_guard lock(submit_mutex_);
    stats_.last_path = path;
  }

 private:
  void publish(std::uint64_t seq, const device::Command& command, const After* after) noexcept;
  bool front_is_ready() noexcept;
  bool front_is_ready_locked() noexcept;
  Status ensure_running() noexcept;
  Status launch(std::uint64_t generation) noexcept;
  Status start(std::uint64_t generation) noexcept;
  Status await_parked(host::Deadline deadline) noexcept;
  void write_requests() noexcept;
  void retire_locked() noexcept;
  Status settle(std::uint64_t seq) noexcept;
  enum class Worker : std::uint8_t {
    kThere,  // runs, or is about to leave: what it took up it will complete
    kAway,   // parked: it comes when it is launched
    kGone,   // will never touch a buffer again
  };
  Worker worker() noexcept;
  void end_launched_calls(std::uint64_t code) noexcept;
  void note_failure(Status status) noexcept;  // kOk: the status that the worker's record tells
  void tell_broken(Status status, const std::string& why) noexcept;
  void count_park(std::uint64_t state) noexcept;
  void watch_start() noexcept;
  void take_note(QueueNote note, std::uint64_t seq) noexcept;
  Status refused_ticket(const Ticket& ticket) noexcept;
  bool kept_away(std::uint64_t* since_ns) const noexcept;

  host::Executor& executor_;
  device::ControlBlock* const control_;
  device::CommandSlot* const queue_;
  device::Completion* const completions_;
  const CallQueueLimits limits_;
  const std::uint32_t depth_;

  FlightRecorder recorder_;
  std::function<void(Status, const std::string&)> when_broken_;

  std::mutex submit_mutex_;                // orders submits; guards the fields down to `stats_`
  std::vector<std::uint8_t> protocol_of_;  // by slot
  std::vector<std::uint8_t> is_after_;     // by slot: a stream makes the command whole
  std::uint64_t retired_ = 0;              // completions read and counted
  std::uint64_t missing_generation_ = 0;   // launched, and not seen running at the last look
  std::uint64_t missing_since_ns_ = 0;
  Stats stats_;
  std::atomic<unsigned> afters_{0};          // calls after a stream, not retired; written under submit_mutex_
  std::atomic<std::uint64_t> submitted_{0};  // written under submit_mutex_, read anywhere
  std::uint64_t launched_ = 0;               // newest generation launched; CpuOps atomics
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint64_t> wait_ns_{0};
  std::atomic<std::uint64_t> parks_[device::kParkReasonCount]{};
  std::atomic<std::uint64_t> counted_generation_{0};

  std::mutex request_mutex_;  // guards the counts below and the request word
  unsigned holds_ = 0;
  unsigned park_requests_ = 0;
  bool exiting_ = false;
  std::atomic<unsigned> stays_{0};  // scopes that keep the worker away

  mutable std::mutex text_mutex_;
  std::string broken_text_;  // under text_mutex_
  std::atomic<Status> broken_{Status::kOk};
  std::atomic<QueueNote> note_{QueueNote::kNone};
  std::atomic<std::uint64_t> note_seq_{0};
  std::atomic<bool> failed_{false};  // the worker will never write again; set after broken_
  bool relay_ended_ = false;         // relay_abort's own: told, or no launch was to be had
};

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_CALL_QUEUE_HPP_
