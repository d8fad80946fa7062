// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/cpu_launched.hpp"

#include <cfenv>
#include <condition_variable>
#include <mutex>

#include "device/group/group_cpu.hpp"
#include "device/mem/fault_cpu.hpp"
#include "device/mem/ops_cpu.hpp"
#include "device/worker/launched.hpp"

namespace ringbell::host {
namespace {

/// The caller's thread may round or flush otherwise; results must not depend on it.
class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace

/// Owned by the communicator and by every captured call.
struct CpuLaunched::State {
  device::LaunchedState launched{};
  device::WorkerContext context{};
  device::FaultPlan fault{};  // counted by the call that has the turn

  void run(device::LaunchedCall call) {
    const DefaultRounding rounding;
    device::CpuGroup group;
    call.state = &launched;
    if (fault.kind == device::FaultKind::kNone) {
      device::run_launched<device::CpuOps>(context, group, call);
    } else {
      device::CpuFaultHook::of_thread = &fault;
      device::run_launched<device::CpuFaultOps>(context, group, call);
      device::CpuFaultHook::of_thread = nullptr;
    }
  }
};

struct CpuLaunched::Done {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;  // under mutex

  void set() {
    {
      const std::lock_guard lock(mutex);
      is_done = true;
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_done; });
  }
  bool wait_until(Deadline deadline) {
    std::unique_lock lock(mutex);
    while (!is_done && !deadline.expired()) changed.wait_for(lock, std::chrono::milliseconds(1));
    return is_done;
  }
};

CpuLaunched::CpuLaunched(const device::WorkerContext& host, const device::Persistent& initial,
                         const device::FaultPlan& fault)
    : state_(std::make_shared<State>()) {
  state_->launched = device::launched_state(initial);
  state_->context = device::stream_context(host);
  state_->fault = fault;
}

Status CpuLaunched::check(Stream stream, bool may_capture, std::string* text) const {
  if (stream == nullptr) {
    *text = "stream is null; on the CPU executor a stream is a ringbell::HostStream*";
    return Status::kInvalidArgument;
  }
  if (!may_capture && static_cast<HostStream*>(stream)->capturing()) {
    *text = "the stream is under capture, and of all calls only all_reduce_on can be part of a graph; end the capture";
    return Status::kInvalidArgument;
  }
  return Status::kOk;
}

void CpuLaunched::launch(Stream stream, const device::LaunchedCall& call) {
  auto* const host_stream = static_cast<HostStream*>(stream);
  if (host_stream->capturing()) {
    host_stream->launch([state = state_, call] { state->run(call); });
    return;
  }
  const std::shared_ptr<Done> before = stream == last_stream_ ? nullptr : last_done_;
  auto done = std::make_shared<Done>();
  host_stream->launch([state = state_, call, before, done] {
    if (before != nullptr) before->wait();
    state->run(call);
    done->set();
  });
  last_stream_ = stream;
  last_done_ = std::move(done);
}

void CpuLaunched::write(Stream stream, std::uint64_t* word, std::uint64_t value) {
  static_cast<HostStream*>(stream)->launch(
      [word, value] { device::CpuOps::store_release(word, value, device::Edge::kCommand); });
}

Status CpuLaunched::await(Stream stream, Deadline deadline) {
  auto* const host_stream = static_cast<HostStream*>(stream);
  if (host_stream->capturing()) return Status::kInvalidArgument;
  if (host_stream->idle()) return Status::kOk;  // also for a caller that only looks
  auto done = std::make_shared<Done>();
  host_stream->launch([done] { done->set(); });
  return done->wait_until(deadline) ? Status::kOk : Status::kAgain;
}

// Each has waited for the one before.
void CpuLaunched::await_calls(Deadline deadline) const noexcept {
  if (last_done_ != nullptr) (void)last_done_->wait_until(deadline);
}

bool CpuLaunched::close(Deadline deadline) noexcept {
  constexpr std::uint64_t kLookNs = 1'000'000;
  while (!device::close_launched<device::CpuOps>(&state_->launched, kLookNs)) {
    if (deadline.expired()) return false;
  }
  return true;
}

}  // namespace ringbell::host
