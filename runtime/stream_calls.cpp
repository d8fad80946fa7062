// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_calls.hpp"

#include "device/mem/ops_cpu.hpp"
#include "runtime/wait_record.hpp"

namespace ringbell {

using device::CpuOps;
using device::Edge;

Status StreamCalls::issue(Stream stream, const device::Command& command) noexcept {
  const std::lock_guard lock(mutex_);
  Status status = executor_.check_stream(stream, host::StreamUse::kLaunch);
  if (status != Status::kOk) return status;
  device::LaunchedCall call{};
  call.issue = issued_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < device::kCommandQuads; ++i) {
    call.command[i] = device::command_pack(command, i, device::command_flag(call.issue));
  }
  status = executor_.launch_call(stream, call);
  // A number that no launch carries would set this rank apart from the others.
  if (status == Status::kOk) issued_.store(call.issue + 1, std::memory_order_relaxed);
  return status;
}

bool StreamCalls::is_waiting() const noexcept { return CpuOps::load_relaxed(&records_.slow_wait.valid) != 0; }

std::optional<device::WaitRecord> StreamCalls::failure() const noexcept {
  if (CpuOps::load_acquire(&records_.failure.valid, Edge::kAbort) == 0) return std::nullopt;
  return read_record(records_.failure);
}

}  // namespace ringbell
