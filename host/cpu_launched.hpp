// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Launched calls of the CPU executor: each runs on the thread of a HostStream. A captured one may be replayed after
// the communicator has gone: what it then needs stays with it.
#ifndef RINGBELL_HOST_CPU_LAUNCHED_HPP_
#define RINGBELL_HOST_CPU_LAUNCHED_HPP_

#include <memory>
#include <string>

#include "device/mem/ops_fault.hpp"
#include "device/worker/launched_call.hpp"
#include "host/clock.hpp"
#include "host/ringbell_host_stream.hpp"

namespace ringbell::host {

class CpuLaunched {
 public:
  /// @param host context of the host way, complete
  CpuLaunched(const device::WorkerContext& host, const device::Persistent& initial, const device::FaultPlan& fault);

  /// As Executor's. One call at a time, but for close() any thread.
  Status check(Stream stream, bool may_capture, std::string* text) const;
  void launch(Stream stream, const device::LaunchedCall& call);
  static void write(Stream stream, std::uint64_t* word, std::uint64_t value);
  static Status await(Stream stream, Deadline deadline);
  void await_calls(Deadline deadline) const noexcept;
  bool close(Deadline deadline) noexcept;

 private:
  struct State;
  struct Done;
  std::shared_ptr<State> state_;
  // The chain of calls that are not captured: each starts after the one before.
  Stream last_stream_ = nullptr;
  std::shared_ptr<Done> last_done_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CPU_LAUNCHED_HPP_
