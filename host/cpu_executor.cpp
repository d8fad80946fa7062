// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The CPU executor: one thread per rank runs the worker, sleeps while it is parked, and is woken by a launch. Windows
// lie in the segment. Calls on streams are cpu_launched.cpp's.
#include <cfenv>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device/group/group_cpu.hpp"
#include "device/mem/fault_cpu.hpp"
#include "device/mem/ops_cpu.hpp"
#include "device/worker/loop.hpp"
#include "host/cpu_launched.hpp"
#include "host/error.hpp"
#include "host/executor.hpp"
#include "host/fault_spec.hpp"

namespace ringbell::host {
namespace {

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(const ExecutorConfig& config)
      : config_(config), fault_(parse_fault(config.fault, config.rank)) {}
  ~CpuExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::byte* create_window(Segment& segment) override {
    RankCard& card = segment.card(config_.rank);
    std::byte* window = segment.window(config_.rank).data();
    card.device_kind = DeviceKind::kCpu;
    card.window_bytes = config_.window_bytes;
    card.window_pointer = reinterpret_cast<std::uintptr_t>(window);
    // A fresh segment is zeroed memory.
    for (const InitialWord& word : config_.initial_words) {
      device::CpuOps::store_relaxed(reinterpret_cast<std::uint64_t*>(window + word.offset), word.value);
    }
    return window;
  }

  void open_peers(Segment& segment, std::byte** window) override {
    for (int rank = 0; rank < config_.world; ++rank) {
      if (segment.card(rank).device_kind != DeviceKind::kCpu) {
        throw_error(
            Status::kInvalidArgument,
            "rank " + std::to_string(rank) + " runs on a GPU and rank " + std::to_string(config_.rank) + " on a CPU",
            "give all ranks the same device (RINGBELL_DEVICE)");
      }
      window[rank] = segment.window(rank).data();
    }
  }

  void prepare(Segment& segment, device::WorkerContext& context, const device::Persistent& initial) override {
    std::byte* control = segment.control(config_.rank).data();
    persistent_ = initial;
    context.control = reinterpret_cast<device::ControlBlock*>(control);
    context.queue = reinterpret_cast<device::CommandSlot*>(control + device::queue_offset());
    context.completions =
        reinterpret_cast<device::Completion*>(control + device::completions_offset(context.queue_depth));
    context.persistent = &persistent_;
    context_ = context;
    launched_ = std::make_unique<CpuLaunched>(context_, initial, fault_);
    thread_ = std::thread([this] { serve(); });
  }

  Status launch(std::uint64_t generation) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      wanted_ = generation;
    }
    wake_.notify_one();
    return Status::kOk;
  }

  Status health() noexcept override { return Status::kOk; }
  std::string error_text() const override {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  std::string residency_refusal() const override { return config_.resident ? "" : "RINGBELL_RESIDENT=0"; }
  bool at_rest() noexcept override {
    const std::lock_guard lock(mutex_);
    return wanted_ == 0 && !running_;
  }
  Status check_range(const void*, std::uint64_t, PointerInfo*) noexcept override { return Status::kOk; }
  void forget(const void*) noexcept override {}
  bool ll128_link() const noexcept override { return true; }
  Status check_stream(Stream stream, StreamUse use) noexcept override {
    try {
      std::string text;
      const Status status = launched_->check(stream, use == StreamUse::kLaunch, &text);
      if (status != Status::kOk) note(std::move(text));
      return status;
    } catch (...) {
      return Status::kSystem;
    }
  }
  Status launch_call(Stream stream, const device::LaunchedCall& call) noexcept override {
    return attempt([&] { launched_->launch(stream, call); });
  }
  Status write_after(Stream stream, std::uint64_t* word, std::uint64_t value) noexcept override {
    return attempt([&] { CpuLaunched::write(stream, word, value); });
  }
  Status await_stream(Stream stream, Deadline deadline) noexcept override {
    Status status = Status::kOk;
    const Status tried = attempt([&] { status = CpuLaunched::await(stream, deadline); });
    return tried == Status::kOk ? status : tried;
  }
  void await_launched(Deadline deadline) noexcept override { launched_->await_calls(deadline); }
  bool close_launched(Deadline deadline) noexcept override {
    return launched_ == nullptr || launched_->close(deadline);
  }
  void close_peers() noexcept override {}
  void destroy_window(bool confirmed_closed) noexcept override {
    // The segment's pages go with its last mapping; a tenant's data must not be found in them before that.
    if (confirmed_closed && context_.window[config_.rank] != nullptr) {
      std::memset(context_.window[config_.rank], 0, config_.window_bytes);
    }
  }

 private:
  void note(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  /// Only memory can be short here.
  template <class Action>
  Status attempt(Action action) noexcept {
    try {
      action();
      return Status::kOk;
    } catch (...) {
      try {
        note("no memory to queue work on the stream");
      } catch (...) {
      }
      return Status::kSystem;
    }
  }

  void serve() {
    std::fesetenv(FE_DFL_ENV);  // the creating thread may round or flush otherwise; results must not depend on it
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return wanted_ != 0 || leaving_; });
      if (wanted_ == 0) return;
      const std::uint64_t generation = wanted_;
      wanted_ = 0;
      running_ = true;
      lock.unlock();
      if (fault_.kind == device::FaultKind::kNone) {
        device::run_worker<device::CpuOps>(context_, group_, generation);
      } else {
        device::CpuFaultHook::of_thread = &fault_;
        device::run_worker<device::CpuFaultOps>(context_, group_, generation);
      }
      lock.lock();
      running_ = false;
    }
  }

  const ExecutorConfig config_;
  device::FaultPlan fault_;  // the worker thread's, once it runs
  device::WorkerContext context_{};
  device::Persistent persistent_{};
  device::CpuGroup group_;
  std::unique_ptr<CpuLaunched> launched_;
  mutable std::mutex mutex_;
  std::string text_;  // of the last error; under mutex_
  std::condition_variable wake_;
  std::uint64_t wanted_ = 0;  // generation to run; 0 = none. Under mutex_.
  bool running_ = false;      // under mutex_
  bool leaving_ = false;      // under mutex_
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const ExecutorConfig& config) {
  return std::make_unique<CpuExecutor>(config);
}

}  // namespace ringbell::host
