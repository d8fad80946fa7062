// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The half of CallQueue that keeps the worker or sends it away: hold, park, stay away, stop.
#include "device/mem/ops_cpu.hpp"
#include "device/queue/producer.hpp"
#include "host/clock.hpp"
#include "runtime/call_queue.hpp"

namespace ringbell {

using device::CpuOps;
using device::Edge;
using device::Residency;

namespace {

constexpr long kSleepNs = 50'000;

}  // namespace

void CallQueue::write_requests() noexcept {
  std::uint64_t request = 0;
  if (park_requests_ != 0 || stays_.load(std::memory_order_relaxed) != 0) request |= device::kRequestPark;
  if (holds_ != 0 && limits_.resident) request |= device::kRequestHold;
  if (exiting_) request |= device::kRequestExit;
  CpuOps::store_relaxed(&control_->control.request, request);
}

Status CallQueue::hold() noexcept {
  if (broken()) return broken_status();
  const std::lock_guard lock(request_mutex_);
  ++holds_;
  write_requests();
  return Status::kOk;
}

Status CallQueue::release() noexcept {
  const std::lock_guard lock(request_mutex_);
  if (holds_ == 0) return Status::kInvalidArgument;
  --holds_;
  write_requests();
  return Status::kOk;
}

// Waits until the worker has said PARKED for the newest launch and its code no longer runs.
Status CallQueue::await_parked(host::Deadline deadline) noexcept {
  for (unsigned polls = 1;; ++polls) {
    const std::uint64_t state = CpuOps::load_acquire(&control_->state.state, Edge::kState);
    const bool parked = device::state_residency(state) == Residency::kParked &&
                        device::state_generation(state) == CpuOps::load_acquire(&launched_, Edge::kStart);
    if ((parked || device::state_residency(state) == Residency::kBroken) && executor_.at_rest()) {
      if (parked) count_park(state);
      return Status::kOk;
    }
    if (failed_.load(std::memory_order_acquire)) return Status::kSystem;
    if (polls % 64 == 0) {
      if (deadline.expired()) return Status::kAgain;
      if (executor_.health() != Status::kOk) return Status::kSystem;
    }
    CpuOps::pause(polls);
    if (polls > 100000) host::sleep_ns(kSleepNs);
  }
}

Status CallQueue::park(host::Deadline deadline) noexcept {
  std::uint64_t before = 0;
  {
    // What is not ready is not waited for, nor what is queued behind it.
    const std::lock_guard lock(submit_mutex_);
    before = retired_;
    const std::uint64_t submitted = submitted_.load(std::memory_order_relaxed);
    while (before < submitted && device::command_is_ready<CpuOps>(queue_, depth_, before)) ++before;
  }
  // Kept away by a scope, the worker runs no call that could be waited for.
  if (before != 0 && stays_.load(std::memory_order_relaxed) == 0) {
    const Status status = wait(Ticket{before - 1, Status::kOk}, deadline);
    if (status == Status::kAgain) return status;
    if (status == Status::kStale) forget_note();  // complete, and no error of the caller's
    if (status != Status::kOk && status != Status::kStale) return status;
  }
  {
    const std::lock_guard lock(request_mutex_);
    ++park_requests_;
    write_requests();
  }
  const Status status = await_parked(deadline);
  const std::lock_guard lock(request_mutex_);
  --park_requests_;
  write_requests();
  return status;
}

Status CallQueue::park_and_stay(host::Deadline deadline) noexcept {
  const Status status = park(deadline);
  if (status != Status::kOk) return status;
  {
    const std::lock_guard lock(request_mutex_);
    stays_.fetch_add(1, std::memory_order_seq_cst);
    write_requests();
  }
  // A submit may have launched in between; it is the last that can, but for relay_abort. Partner of the fence:
  // launch().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Status parked = await_parked(deadline);
  if (parked != Status::kOk) unpark();
  return parked;
}

void CallQueue::unpark() noexcept {
  {
    const std::lock_guard lock(request_mutex_);
    if (stays_.load(std::memory_order_relaxed) == 0) return;
    stays_.fetch_sub(1, std::memory_order_seq_cst);
    write_requests();
  }
  CpuOps::fence_seq_cst(Edge::kPark);
  keep_going();
  // Aborted meanwhile: the worker must run once more to tell the peers, now and not at the next tick.
  if (broken() && !failed_.load(std::memory_order_acquire)) (void)ensure_running();
}

bool CallQueue::stop(host::Deadline deadline) noexcept {
  {
    const std::lock_guard lock(request_mutex_);
    exiting_ = true;
    write_requests();
  }
  return await_parked(deadline) == Status::kOk;
}

}  // namespace ringbell
