// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/call_queue.hpp"

#include <algorithm>

#include "device/mem/ops_cpu.hpp"
#include "device/queue/producer.hpp"
#include "host/error.hpp"
#include "host/log.hpp"
#include "runtime/failure_text.hpp"
#include "runtime/wait_record.hpp"

namespace ringbell {
namespace {

using device::CpuOps;
using device::Edge;
using device::LaunchRight;
using device::Residency;

constexpr unsigned kPollsPerState = 32;             // completion polls between two looks at the worker's state
constexpr std::uint64_t kSleepAfterNs = 2'000'000;  // a wait this long no longer burns the core
constexpr long kSleepNs = 50'000;
constexpr long kKeptAwaySleepNs = 1'000'000;  // nothing can complete before another thread of this rank acts
constexpr std::uint64_t kParkingLimitNs = 1'000'000'000;  // PARKING resolves in microseconds unless the device is gone

/// Tells `why` and `top` that a thread waits, once it has waited for longer than a wait that goes well.
class WaitNotice {
 public:
  explicit WaitNotice(device::HostWaitLine& line) noexcept : line_(line) {}
  ~WaitNotice() {
    if (given_) std::atomic_ref(line_.threads).fetch_sub(1, std::memory_order_relaxed);
  }
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;
  void give(std::uint64_t seq, std::uint64_t since_ns) noexcept {
    if (given_) return;
    given_ = true;
    CpuOps::store_relaxed(&line_.since_ns, since_ns);
    CpuOps::store_relaxed(&line_.seq, seq);
    std::atomic_ref(line_.threads).fetch_add(1, std::memory_order_relaxed);
  }

 private:
  device::HostWaitLine& line_;
  bool given_ = false;
};

}  // namespace

CallQueue::CallQueue(host::Executor& executor, device::ControlBlock* control, device::CommandSlot* queue,
                     device::Completion* completions, const CallQueueLimits& limits)
    : executor_(executor),
      control_(control),
      queue_(queue),
      completions_(completions),
      limits_(limits),
      depth_(limits.depth),
      protocol_of_(limits.depth, 0),
      is_after_(limits.depth, 0) {}

// ---- submit ---------------------------------------------------------------------------------------------------------

void CallQueue::retire_locked() noexcept {
  while (retired_ < submitted_.load(std::memory_order_relaxed)) {
    const device::Completion& line = completions_[retired_ & (depth_ - 1)];
    const std::uint64_t word = CpuOps::load_acquire(&line.word, Edge::kCompletion);
    if (device::completion_count(word) != retired_ + 1) return;
    if (device::completion_status(word) != Status::kOk) {
      recorder_.completed(retired_, device::completion_status(word));
      note_failure(device::completion_status(word));
      return;
    }
    std::uint8_t& is_after = is_after_[retired_ & (depth_ - 1)];
    afters_.store(afters_.load(std::memory_order_relaxed) - is_after, std::memory_order_relaxed);
    is_after = 0;
    ++stats_.calls;
    stats_.sent_bytes[protocol_of_[retired_ & (depth_ - 1)]] += CpuOps::load_relaxed(&line.info);
    ++retired_;
  }
}

// A stream that cannot be given the store breaks the order of all that comes behind it.
void CallQueue::publish(std::uint64_t seq, const device::Command& command, const After* after) noexcept {
  if (after == nullptr || !after->has_value()) return device::publish_command<CpuOps>(queue_, depth_, seq, command);
  const device::LastStore last = device::publish_all_but_last<CpuOps>(queue_, depth_, seq, command);
  is_after_[seq & (depth_ - 1)] = 1;
  afters_.fetch_add(1, std::memory_order_relaxed);
  const Status status = executor_.write_after(**after, last.word, last.value);
  if (status == Status::kOk) return;
  // Nothing will be stored there.
  is_after_[seq & (depth_ - 1)] = 0;
  afters_.fetch_sub(1, std::memory_order_relaxed);
  driver_refused();
}

bool CallQueue::front_is_ready_locked() noexcept {
  retire_locked();
  return retired_ < submitted_.load(std::memory_order_relaxed) &&
         device::command_is_ready<CpuOps>(queue_, depth_, retired_);
}

// A worker that is launched for a command that is not ready would only idle and leave.
bool CallQueue::front_is_ready() noexcept {
  if (afters_.load(std::memory_order_relaxed) == 0) return true;
  const std::lock_guard lock(submit_mutex_);
  return front_is_ready_locked();
}

bool CallQueue::stores_pending() noexcept {
  const std::lock_guard lock(submit_mutex_);
  const std::uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  for (std::uint64_t seq = retired_; seq < submitted; ++seq) {
    if (is_after_[seq & (depth_ - 1)] != 0 && !device::command_is_ready<CpuOps>(queue_, depth_, seq)) return true;
  }
  return false;
}

Status CallQueue::submit(std::span<const device::Command> commands, Ticket* tickets, const After* afters) noexcept {
  {
    const std::lock_guard lock(submit_mutex_);
    if (broken()) return broken_status();
    const std::uint64_t first = submitted_.load(std::memory_order_relaxed);
    if (first + commands.size() - retired_ > depth_) {
      retire_locked();
      if (broken()) return broken_status();
      if (first + commands.size() - retired_ > depth_) {
        note_.store(QueueNote::kFull, std::memory_order_relaxed);
        return Status::kAgain;
      }
    }
    const std::uint64_t ticks = host::read_ticks();
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const std::uint64_t seq = first + i;
      protocol_of_[seq & (depth_ - 1)] = static_cast<std::uint8_t>(commands[i].protocol);
      publish(seq, commands[i], afters == nullptr ? nullptr : &afters[i]);
      recorder_.submitted(seq, commands[i], ticks);  // the worker has the call already
      tickets[i] = Ticket{seq, Status::kOk};
    }
    const device::Command& last = commands.back();
    stats_.last_path = {last.algorithm, last.protocol, last.channels, last.chunk_bytes};
    submitted_.store(first + commands.size(), std::memory_order_release);
  }
  CpuOps::fence_seq_cst(Edge::kPark);
  if (!front_is_ready()) return Status::kOk;
  const Status status = ensure_running();
  // The commands are in the queue; a launch that failed is told by what waits for them.
  if (status != Status::kOk) fail(status, executor_.error_text());
  return Status::kOk;
}

// ---- launching ------------------------------------------------------------------------------------------------------

void CallQueue::count_park(std::uint64_t state) noexcept {
  const std::uint64_t generation = device::state_generation(state);
  std::uint64_t counted = counted_generation_.load(std::memory_order_relaxed);
  if (generation == 0 || counted >= generation) return;
  if (counted_generation_.compare_exchange_strong(counted, generation)) {
    parks_[static_cast<int>(device::state_reason(state))].fetch_add(1, std::memory_order_relaxed);
  }
}

Status CallQueue::launch(std::uint64_t generation) noexcept {
  // Dekker with park_and_stay: it raises stays_ and then looks for a launch; this claimed one and looks for stays_.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (stays_.load(std::memory_order_relaxed) != 0) {
    device::give_back_launch<CpuOps>(&launched_, generation);
    return Status::kOk;
  }
  return start(generation);
}

Status CallQueue::start(std::uint64_t generation) noexcept {
  // Counted first: whoever sees the worker's park has seen its launch.
  launches_.fetch_add(1, std::memory_order_relaxed);
  const Status status = executor_.launch(generation);
  if (status != Status::kOk) {
    launches_.fetch_sub(1, std::memory_order_relaxed);
    device::give_back_launch<CpuOps>(&launched_, generation);
  }
  return status;
}

Status CallQueue::ensure_running() noexcept {
  std::uint64_t since = 0;
  for (unsigned polls = 1;; ++polls) {
    if (stays_.load(std::memory_order_relaxed) != 0) return Status::kOk;
    switch (device::claim_launch<CpuOps>(&control_->state, &launched_)) {
      case LaunchRight::kNotNeeded: return Status::kOk;
      case LaunchRight::kBroken: return Status::kOk;  // told by the completion or by settle()
      case LaunchRight::kMine: {
        count_park(CpuOps::load_relaxed(&control_->state.state));
        return launch(CpuOps::load_relaxed(&launched_));
      }
      case LaunchRight::kUnresolved: break;
    }
    CpuOps::pause(polls);
    if (polls % 4096 == 0) {
      const std::uint64_t now = host::monotonic_ns();
      if (since == 0) since = now;
      if (now - since > kParkingLimitNs) return executor_.health() == Status::kOk ? Status::kOk : Status::kSystem;
    }
  }
}

// A launch waits for room on the GPU: as long as the longest kernel that fills it. Timed from the first look that finds
// this generation missing: the launcher's own clock could be read before it has written it.
void CallQueue::watch_start() noexcept {
  const std::uint64_t state = CpuOps::load_acquire(&control_->state.state, Edge::kState);
  const std::uint64_t wanted = CpuOps::load_acquire(&launched_, Edge::kStart);
  const bool starting =
      device::state_residency(state) == Residency::kParked && device::state_generation(state) != wanted;
  if (limits_.timeout_ns == 0 || !starting) return;
  std::uint64_t waited_ns = 0;
  {
    const std::lock_guard lock(submit_mutex_);
    const std::uint64_t now = host::monotonic_ns();
    if (missing_generation_ != wanted) {
      missing_generation_ = wanted;
      missing_since_ns_ = now;
    }
    waited_ns = now - missing_since_ns_;
  }
  if (waited_ns < limits_.timeout_ns) return;
  std::string why;
  try {
    why = "the worker was launched " + std::to_string(waited_ns / 1'000'000) +
          " ms ago and does not run: the device is filled by other work; leave room for it, or use hold()";
  } catch (...) {
  }
  abort(device::abort_code(Status::kTimeout, limits_.rank, limits_.rank), why);
}

bool CallQueue::keep_going() noexcept {
  bool outstanding = false;
  bool ready = false;
  {
    const std::lock_guard lock(submit_mutex_);
    ready = front_is_ready_locked();
    outstanding = retired_ < submitted_.load(std::memory_order_relaxed);
  }
  if (broken()) return false;
  if (ready) {
    const Status status = ensure_running();
    if (status != Status::kOk) fail(status, executor_.error_text());
    watch_start();
  }
  return outstanding;
}

// ---- completion -----------------------------------------------------------------------------------------------------

// The worker's record is complete when a completion or BROKEN is seen: it was written before both.
void CallQueue::note_failure(Status status) noexcept {
  device::WaitRecord record = read_record(control_->way[device::kHostWay].failure);
  if (status == Status::kOk) status = record.valid != 0 ? record.status : Status::kAborted;
  record.status = status;
  Status none = Status::kOk;
  const std::lock_guard lock(text_mutex_);
  if (!broken_.compare_exchange_strong(none, status, std::memory_order_acq_rel)) return;
  end_launched_calls(device::abort_code(status, record.reporter, record.peer));
  try {
    broken_text_ = failure_text(record, limits_.rank, limits_.timeout_ns);
  } catch (...) {
    // No memory for a text: the status alone must do.
  }
  tell_broken(status, broken_text_);
}

void CallQueue::tell_broken(Status status, const std::string& why) noexcept {
  host::log_message(host::LogLevel::kError, why);
  try {
    if (when_broken_) when_broken_(status, why);
  } catch (...) {
  }
}

Status CallQueue::settle(std::uint64_t seq) noexcept {
  const device::Completion& line = completions_[seq & (depth_ - 1)];
  const std::uint64_t word = CpuOps::load_acquire(&line.word, Edge::kCompletion);
  const std::uint64_t count = device::completion_count(word);
  if (count == seq + 1) {
    const Status status = device::completion_status(word);
    recorder_.completed(seq, status);
    if (status != Status::kOk) note_failure(status);
    return status;
  }
  if (count < seq + 1) return Status::kPending;
  take_note(QueueNote::kStaleTicket, seq);
  return Status::kStale;
}

void CallQueue::take_note(QueueNote note, std::uint64_t seq) noexcept {
  note_seq_.store(seq, std::memory_order_relaxed);
  note_.store(note, std::memory_order_relaxed);
}

// Nothing was queued under this ticket, or not here. The text of a call that was refused stays: it tells more.
Status CallQueue::refused_ticket(const Ticket& ticket) noexcept {
  if (ticket.status == Status::kOk) {
    take_note(QueueNote::kUnknownTicket, ticket.seq);
    return Status::kInvalidArgument;
  }
  if (ticket.status == Ticket{}.status) take_note(QueueNote::kNoCall, ticket.seq);
  return ticket.status;
}

Status CallQueue::test(const Ticket& ticket) noexcept {
  if (ticket.status != Status::kOk) return refused_ticket(ticket);
  if (ticket.seq >= submitted_.load(std::memory_order_acquire)) return refused_ticket(ticket);
  Status status = settle(ticket.seq);
  if (status != Status::kPending) return status;
  switch (worker()) {
    case Worker::kGone:
      status = settle(ticket.seq);  // the completion may have come just before
      if (status != Status::kPending) return status;
      if (!broken()) note_failure(Status::kOk);
      return broken_status();  // never started
    case Worker::kAway:
      if (!broken()) {
        const Status launched = front_is_ready() ? ensure_running() : Status::kOk;
        if (launched != Status::kOk) fail(launched, executor_.error_text());
        return Status::kPending;
      }
      break;
    case Worker::kThere: break;
  }
  // Until the worker has ended what it does, in and out are its own. Of an abort it tells; a failed device never does.
  return broken() && executor_.health() != Status::kOk ? Status::kSystem : Status::kPending;
}

// May the worker touch the buffers of what is queued? Asked when a call has not completed.
CallQueue::Worker CallQueue::worker() noexcept {
  bool aborted = false;
  if (broken()) {
    if (failed_.load(std::memory_order_acquire)) return Worker::kGone;
    // A worker that comes after an abort looks at the abort word before it looks at the queue (Dekker with run_worker:
    // it says RUNNING and then looks; this looks the other way round).
    aborted = CpuOps::load_acquire(&control_->control.abort_code, Edge::kAbort) != 0;
    if (aborted) CpuOps::fence_seq_cst(Edge::kPark);
  }
  switch (device::state_residency(CpuOps::load_acquire(&control_->state.state, Edge::kState))) {
    case Residency::kBroken: return Worker::kGone;
    case Residency::kParked: return aborted ? Worker::kGone : Worker::kAway;
    default: return Worker::kThere;
  }
}

// Asked by a wait that sleeps already. No peer and no worker counts the time of a call that this rank does not let run.
bool CallQueue::kept_away(std::uint64_t* since_ns) const noexcept {
  if (stays_.load(std::memory_order_relaxed) == 0) {
    *since_ns = 0;
    return false;
  }
  const std::uint64_t now = host::monotonic_ns();
  if (*since_ns == 0) *since_ns = now;
  return limits_.timeout_ns != 0 && now - *since_ns >= limits_.timeout_ns;
}

Status CallQueue::wait(const Ticket& ticket, host::Deadline deadline) noexcept {
  if (ticket.status != Status::kOk) return refused_ticket(ticket);
  if (ticket.seq >= submitted_.load(std::memory_order_acquire)) return refused_ticket(ticket);
  Status status = settle(ticket.seq);
  if (status != Status::kPending) return status;
  const std::uint64_t start = host::monotonic_ns();
  std::uint64_t kept_away_since = 0;
  WaitNotice notice(control_->host_wait);
  for (unsigned polls = 1;; ++polls) {
    status = polls % kPollsPerState == 0 ? test(ticket) : settle(ticket.seq);
    if (status != Status::kPending) break;
    if (polls % 256 == 0) {
      notice.give(ticket.seq, start);
      if (deadline.expired()) {
        status = Status::kAgain;
        break;
      }
      if (host::monotonic_ns() - start > kSleepAfterNs) {
        if (kept_away(&kept_away_since)) {
          take_note(QueueNote::kKeptAway, ticket.seq);
          status = Status::kAgain;
          break;
        }
        host::sleep_ns(kept_away_since == 0 ? kSleepNs : kKeptAwaySleepNs);
      }
    }
    CpuOps::pause(polls <= limits_.spins_before_yield ? 1 : CpuOps::kSpinsPerYield);
  }
  wait_ns_.fetch_add(host::monotonic_ns() - start, std::memory_order_relaxed);
  return status;
}

// ---- what breaks the queue
// -------------------------------------------------------------------------------------------

void CallQueue::abort(std::uint64_t code, const std::string& why) noexcept {
  Status none = Status::kOk;
  {
    const std::lock_guard lock(text_mutex_);
    if (!broken_.compare_exchange_strong(none, device::abort_status(code), std::memory_order_acq_rel)) return;
    broken_text_ = why;
  }
  CpuOps::store_release(&control_->control.abort_code, code, Edge::kAbort);
  // A parked worker must run once more to tell the peers. One that runs may have looked at the word for the last time
  // and park: relay_abort sees to that, and to a launch that fails here or that a scope forbids.
  CpuOps::fence_seq_cst(Edge::kPark);
  (void)ensure_running();
  tell_broken(device::abort_status(code), why);
}

// Asked again and again, so it needs no fence and waits for no PARKING. stays_ is not asked: what is launched here runs
// no call. The abort word comes before failed_, as fail() writes them: without it a worker would run calls.
bool CallQueue::relay_abort() noexcept {
  if (relay_ended_ || !broken()) return false;
  if (CpuOps::load_acquire(&control_->control.abort_code, Edge::kAbort) == 0) return true;
  relay_ended_ = failed_.load(std::memory_order_acquire);
  if (relay_ended_) return false;
  switch (device::claim_launch<CpuOps>(&control_->state, &launched_)) {
    case LaunchRight::kBroken: relay_ended_ = true; return false;
    case LaunchRight::kNotNeeded:
    case LaunchRight::kUnresolved: return true;
    case LaunchRight::kMine: break;
  }
  count_park(CpuOps::load_relaxed(&control_->state.state));
  if (start(CpuOps::load_relaxed(&launched_)) == Status::kOk) return true;
  relay_ended_ = true;
  try {
    host::log_message(host::LogLevel::kWarn,
                      "the other ranks cannot be told of the abort and learn of it by their own "
                      "time-outs: the worker was not launched: " +
                          executor_.error_text());
  } catch (...) {
  }
  return false;
}

void CallQueue::fail(Status status, const std::string& why) noexcept {
  Status none = Status::kOk;
  const std::lock_guard lock(text_mutex_);
  const bool first = broken_.compare_exchange_strong(none, status, std::memory_order_acq_rel);
  failed_.store(true, std::memory_order_release);
  if (!first) return;
  end_launched_calls(device::abort_code(status, limits_.rank, limits_.rank));
  broken_text_ = why;
  tell_broken(status, why);
}

// A worker that still runs may write into the buffers of calls that were queued before: they end when it says so.
void CallQueue::driver_refused() noexcept {
  std::string why;
  try {
    why = executor_.error_text();
  } catch (...) {
    // Memory may be what was short.
  }
  if (executor_.health() != Status::kOk) return fail(Status::kSystem, why);
  abort(device::abort_code(Status::kSystem, limits_.rank, limits_.rank), why);
}

// Calls on streams look at the abort word, too, and no worker is left that would tell them.
void CallQueue::end_launched_calls(std::uint64_t code) noexcept {
  if (CpuOps::load_relaxed(&control_->control.abort_code) != 0) return;
  CpuOps::store_release(&control_->control.abort_code, code, Edge::kAbort);
}

std::string CallQueue::broken_text() const {
  const std::lock_guard lock(text_mutex_);
  return broken_text_;
}

Stats CallQueue::stats() noexcept {
  const std::lock_guard lock(submit_mutex_);
  if (!broken()) retire_locked();
  count_park([&] {
    const std::uint64_t state = CpuOps::load_acquire(&control_->state.state, Edge::kState);
    return device::state_residency(state) == Residency::kParked ? state : 0;
  }());
  Stats stats = stats_;
  stats.launches = launches_.load(std::memory_order_relaxed);
  const auto parks = [&](device::ParkReason reason) {
    return parks_[static_cast<int>(reason)].load(std::memory_order_relaxed);
  };
  stats.parks = {parks(device::ParkReason::kIdle), parks(device::ParkReason::kLease),
                 parks(device::ParkReason::kPeerLease), parks(device::ParkReason::kRequest),
                 parks(device::ParkReason::kBurstEnd)};
  stats.wait_ns = wait_ns_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace ringbell
