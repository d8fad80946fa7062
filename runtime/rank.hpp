// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of a group: set-up in order, the service thread's tick, teardown in reverse. The data path is CallQueue.
#ifndef RINGBELL_RUNTIME_RANK_HPP_
#define RINGBELL_RUNTIME_RANK_HPP_

#include <memory>
#include <mutex>
#include <string>

#include "device/layout/command.hpp"
#include "host/clock.hpp"
#include "host/executor.hpp"
#include "host/fence.hpp"
#include "host/liveness.hpp"
#include "host/segment.hpp"
#include "host/service_thread.hpp"
#include "runtime/call_queue.hpp"
#include "runtime/plan.hpp"
#include "runtime/settings.hpp"
#include "runtime/stream_calls.hpp"

namespace ringbell {

/// A caller's seconds: negative waits for ever, 0 only looks.
host::Deadline caller_deadline(double seconds) noexcept;

class Rank final : public host::Serviced {
 public:
  /// @throws Error as Communicator's constructor
  Rank(const UniqueId& id, int rank, int world, int local_rank, const Config& config);
  ~Rank() override;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] CallQueue& queue() noexcept { return *queue_; }

  /// A checked call to a command: ranges and stream asked of the executor, path planned.
  Status make_command(const AllReduceCall& call, device::Command* command) noexcept;
  /// Puts a command on a stream.
  Status issue_on(Stream stream, const device::Command& command) noexcept;
  Status check_stream(Stream stream, host::Deadline deadline) noexcept;
  [[nodiscard]] Stats stats() noexcept;
  [[nodiscard]] device::Command nop_command() const noexcept;
  void abort_here() noexcept;
  void forget(const void* pointer) noexcept { executor_->forget(pointer); }

  void set_error(std::string text);
  [[nodiscard]] std::string last_error() const;
  [[nodiscard]] std::string describe() const;

  bool tick() noexcept override;

 private:
  void set_up(host::Deadline deadline);
  void dump_when_broken();
  void watch_peers() noexcept;
  void take_stream_failure() noexcept;
  bool end_streams(host::Deadline deadline) noexcept;
  [[nodiscard]] std::uint8_t common_flags() const noexcept;
  void note_executor_error(const char* what) noexcept;
  Status check_range(const void* pointer, std::uint64_t bytes, const char* name, bool* plain) noexcept;

  const int rank_;
  const int world_;
  const Settings settings_;
  PlanBasis basis_;
  std::unique_ptr<host::Segment> segment_;
  std::unique_ptr<host::Liveness> liveness_;
  std::unique_ptr<host::Fence> fence_;
  std::unique_ptr<host::Executor> executor_;
  device::WorkerContext context_{};
  std::unique_ptr<CallQueue> queue_;
  std::unique_ptr<StreamCalls> streams_;
  std::string residency_refusal_;  // empty: the worker stays

  // The service thread's own.
  std::uint64_t watched_ns_ = 0;
  std::uint64_t absent_since_ns_[device::kMaxRanks] = {};

  mutable std::mutex error_mutex_;
  std::string error_;  // under error_mutex_
};

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_RANK_HPP_
