// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA executor: window in device memory, peers' windows by CUDA IPC or peer access, the worker a cooperative
// kernel of one CTA on a stream of its own. Nothing is ever enqueued behind that kernel. Everything a launch needs is
// made and loaded in prepare(); launch() is the only driver call while the communicator runs, beside queries.
#include <atomic>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "device/cuda/launch.hpp"
#include "device/cuda/torn_line.hpp"
#include "host/cuda_call.hpp"
#include "host/cuda_device.hpp"
#include "host/cuda_launched.hpp"
#include "host/cuda_torn_line.hpp"
#include "host/executor.hpp"
#include "host/fault_spec.hpp"
#include "host/log.hpp"

namespace ringbell::host {
namespace {

// CUDA IPC shares whole blocks of 2 MiB: nothing else may lie in one.
constexpr std::size_t kWindowGranuleBytes = 2u << 20;
constexpr unsigned kThreads = device::kResidentThreads;

std::atomic<std::uint64_t> kept_windows{0};

std::size_t window_allocation_bytes(std::uint64_t bytes) {
  return (bytes + kWindowGranuleBytes - 1) / kWindowGranuleBytes * kWindowGranuleBytes;
}

std::string rank_and_gpu(const RankCard& card) { return fmt::format("rank {} (GPU {})", card.rank, card.pci_id); }

class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(const ExecutorConfig& config)
      : config_(config), device_(config.device_ordinal), fault_(parse_fault(config.fault, config.rank)) {
    if (const std::string refusal = device_refusal(device_); !refusal.empty()) {
      throw_error(Status::kUnsupported, refusal);
    }
    refusal_ = config.resident ? host::residency_refusal(device_) : "RINGBELL_RESIDENT=0";
    primary_ = primary_context(device_);
    const CudaScope scope(primary_);
    device::KernelFigures figures;
    cuda_check(static_cast<cudaError_t>(is_faulty() ? device::load_fault_kernel(kThreads, &figures)
                                                    : device::load_resident_kernel(kThreads, &figures)),
               "loading the resident kernel",
               "this build has no code for the GPU's architecture, or the driver is too old");
    cuda_check(static_cast<cudaError_t>(device::load_torn_line_kernel()), "loading the torn-line test");
    int processors = 0;
    cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_), "cudaDeviceGetAttribute");
    budget_ = processors * figures.ctas_per_sm;
    if (refusal_.empty() && resident_ctas(device_, 1) > budget_) {
      resident_ctas(device_, -1);
      refusal_ = fmt::format(
          "device {} has room for {} resident CTAs and this process uses them all; destroy communicators that are not "
          "needed",
          device_, budget_);
    }
    // The greatest priority, so that a relaunch gets its SM first; non-blocking, so that the legacy stream does not
    // wait.
    int least = 0;
    int greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest);
    if (error != cudaSuccess) {
      if (refusal_.empty()) resident_ctas(device_, -1);
      cuda_check(error, "cudaStreamCreateWithPriority");
    }
  }

  // Only after the worker is at rest: Rank gives an executor up instead that still runs.
  ~CudaExecutor() override {
    launched_.reset();
    const CudaScope scope(primary_);
    if (registered_ != nullptr) cudaHostUnregister(registered_);
    if (own_ != nullptr) cudaFree(own_);
    cudaStreamDestroy(stream_);
    if (refusal_.empty()) resident_ctas(device_, -1);
  }

  std::byte* create_window(Segment& segment) override {
    const CudaScope scope(primary_);
    RankCard& card = segment.card(config_.rank);
    describe_device(device_, card);
    window_bytes_ = window_allocation_bytes(config_.window_bytes + torn_line_bytes(config_.window_bytes));
    cuda_check(cudaMalloc(reinterpret_cast<void**>(&window_), window_bytes_), "cudaMalloc of the window",
               "free device memory or lower RINGBELL_SLOT_BYTES");
    cuda_check(cudaMemsetAsync(window_, 0, window_bytes_, stream_), "cudaMemsetAsync");
    for (const InitialWord& word : config_.initial_words) {
      cuda_check(
          cudaMemcpyAsync(window_ + word.offset, &word.value, sizeof word.value, cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    }
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    if (config_.world > 1) {
      cudaIpcMemHandle_t handle{};
      cuda_check(cudaIpcGetMemHandle(&handle, window_), "cudaIpcGetMemHandle", "this platform has no CUDA IPC");
      static_assert(sizeof handle == sizeof card.window_handle);
      std::memcpy(card.window_handle, &handle, sizeof handle);
    }
    card.window_bytes = window_bytes_;
    card.window_pointer = reinterpret_cast<std::uintptr_t>(window_);
    return window_;
  }

  void open_peers(Segment& segment, std::byte** window) override {
    const CudaScope scope(primary_);
    const RankCard& own = segment.card(config_.rank);
    int sharing = 1;
    for (int rank = 0; rank < config_.world; ++rank) {
      if (rank == config_.rank) continue;
      const RankCard& peer = segment.card(rank);
      if (std::memcmp(own.gpu_uuid, peer.gpu_uuid, sizeof own.gpu_uuid) == 0) ++sharing;
      check_peer(segment, own, peer);
      window[rank] = segment.same_process(rank) ? open_same_process(own, peer) : open_other_process(own, peer);
      if (!keeps_lines_whole(device_, own, peer)) {
        no_ll128(fmt::format("{} and {} are not joined by NVLink", rank_and_gpu(own), rank_and_gpu(peer)));
      }
    }
    if (refusal_.empty() && sharing > budget_) {
      throw_error(Status::kUnsupported,
                  fmt::format("{} ranks share GPU {}, which has room for {}", sharing, own.pci_id, budget_));
    }
    if (sharing > 1 && !under_mps(device_)) {
      log_once("no-mps", LogLevel::kWarn,
               fmt::format("{} ranks share GPU {} without MPS: the driver time-slices them, milliseconds a call; start "
                           "nvidia-cuda-mps-control -d",
                           sharing, own.pci_id));
    }
    if (config_.world > 1) {
      const LinkVerdict verdict = test_links(segment, stream_, window, config_.window_bytes);
      if (!verdict.lines_whole) no_ll128(verdict.reason);
    }
  }

  bool ll128_link() const noexcept override { return lines_stay_whole_; }

  void prepare(Segment& segment, device::WorkerContext& context, const device::Persistent& initial) override {
    const CudaScope scope(primary_);
    const std::span<std::byte> control = segment.control(config_.rank);
    cuda_check(cudaHostRegister(control.data(), control.size(), cudaHostRegisterMapped | cudaHostRegisterPortable),
               "cudaHostRegister of the control pages", "raise the memlock limit (ulimit -l)");
    registered_ = control.data();
    std::byte*& mapped = mapped_;
    cuda_check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped), control.data(), 0),
               "cudaHostGetDevicePointer");
    cuda_check(cudaMalloc(reinterpret_cast<void**>(&own_), sizeof(OwnMemory)), "cudaMalloc");
    const OwnMemory first{initial, fault_};
    cuda_check(cudaMemcpyAsync(own_, &first, sizeof first, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    context.control = reinterpret_cast<device::ControlBlock*>(mapped);
    context.queue = reinterpret_cast<device::CommandSlot*>(mapped + device::queue_offset());
    context.completions =
        reinterpret_cast<device::Completion*>(mapped + device::completions_offset(context.queue_depth));
    context.persistent = &own_->persistent;
    context_ = context;
    launched_ = std::make_unique<CudaLaunched>(primary_, device_, context_, initial, fault_);
  }

  Status launch(std::uint64_t generation) noexcept override {
    const CudaScope scope(primary_);
    const auto error = static_cast<cudaError_t>(
        is_faulty() ? device::launch_fault_kernel(context_, generation, kThreads, &own_->fault, stream_)
                    : device::launch_resident_kernel(context_, generation, kThreads, refusal_.empty(), stream_));
    return error == cudaSuccess ? Status::kOk : failed("launching the resident kernel", error);
  }

  Status health() noexcept override {
    const CudaScope scope(primary_);
    const cudaError_t error = cudaStreamQuery(stream_);
    return error == cudaSuccess || error == cudaErrorNotReady ? Status::kOk : failed("the device has failed", error);
  }

  // A device that failed runs nothing any more.
  bool at_rest() noexcept override {
    const CudaScope scope(primary_);
    return cudaStreamQuery(stream_) != cudaErrorNotReady;
  }

  std::string residency_refusal() const override { return refusal_; }

  Status check_stream(Stream stream, StreamUse use) noexcept override {
    return attempt([&] { launched_->check(stream, use); });
  }
  Status launch_call(Stream stream, const device::LaunchedCall& call) noexcept override {
    return attempt([&] { launched_->launch(stream, call); });
  }
  Status write_after(Stream stream, std::uint64_t* word, std::uint64_t value) noexcept override {
    auto* const seen_by_device =
        reinterpret_cast<std::uint64_t*>(mapped_ + (reinterpret_cast<std::byte*>(word) - registered_));
    return attempt([&] { launched_->write(stream, seen_by_device, value); });
  }
  Status await_stream(Stream stream, Deadline deadline) noexcept override {
    Status status = Status::kOk;
    const Status tried = attempt([&] { status = launched_->await(stream, deadline); });
    return tried == Status::kOk ? status : tried;
  }
  void await_launched(Deadline deadline) noexcept override { launched_->await_calls(deadline); }
  bool close_launched(Deadline deadline) noexcept override {
    return launched_ == nullptr || launched_->close(deadline);
  }

  std::string error_text() const override {
    const std::lock_guard lock(text_mutex_);
    return text_;
  }

  Status check_range(const void* pointer, std::uint64_t bytes, PointerInfo* info) noexcept override {
    if (!config_.ask_every_time) {
      if (const auto known = ranges_.find(pointer, bytes)) {
        info->plain_device = known->plain_device;
        return Status::kOk;
      }
    }
    try {
      const CudaScope scope(primary_);
      KnownRange range;
      std::string fault = ask_range(device_, pointer, bytes, &range);
      if (!fault.empty()) {
        const std::lock_guard lock(text_mutex_);
        text_ = std::move(fault);
        return Status::kInvalidArgument;
      }
      ranges_.insert(range);
      info->plain_device = range.plain_device;
      return Status::kOk;
    } catch (...) {
      return Status::kSystem;
    }
  }

  void forget(const void* pointer) noexcept override { ranges_.forget(pointer); }

  void close_peers() noexcept override {
    const CudaScope scope(primary_);
    for (int i = 0; i < opened_count_; ++i) cudaIpcCloseMemHandle(opened_[i]);
    opened_count_ = 0;
  }

  void destroy_window(bool confirmed_closed) noexcept override {
    if (window_ == nullptr) return;
    const CudaScope scope(primary_);
    if (cudaStreamQuery(stream_) == cudaSuccess) {
      // The next owner of this memory must not find a tenant's data.
      cudaMemsetAsync(window_, 0, window_bytes_, stream_);
      cudaStreamSynchronize(stream_);
    }
    if (confirmed_closed) {
      cudaFree(window_);
    } else {
      // A peer may still store into it: never freed, never reused.
      const std::uint64_t kept = kept_windows.fetch_add(1) + 1;
      try {
        log_message(LogLevel::kInfo,
                    fmt::format("a window of {} is kept until process exit, a peer did not confirm that it "
                                "let go of it ({} kept)",
                                bytes_text(window_bytes_), kept));
      } catch (...) {
      }
    }
    window_ = nullptr;
  }

 private:
  /// The worker's own device memory; survives parking.
  struct OwnMemory {
    device::Persistent persistent;
    device::FaultPlan fault;
  };

  bool is_faulty() const noexcept { return fault_.kind != device::FaultKind::kNone; }

  void check_peer(const Segment& segment, const RankCard& own, const RankCard& peer) const {
    if (peer.device_kind != DeviceKind::kCuda) {
      throw_error(Status::kInvalidArgument,
                  fmt::format("rank {} runs on a CPU and rank {} on a GPU", peer.rank, own.rank),
                  "give all ranks the same device (RINGBELL_DEVICE)");
    }
    const bool same_gpu = std::memcmp(own.gpu_uuid, peer.gpu_uuid, sizeof own.gpu_uuid) == 0;
    const bool same_process = segment.same_process(static_cast<int>(peer.rank));
    if (same_gpu && !config_.allow_shared_device) {
      throw_error(Status::kUnsupported,
                  fmt::format("ranks {} and {} are both on GPU {}", own.rank, peer.rank, own.pci_id),
                  "give each rank its own GPU, or allow it with RINGBELL_ALLOW_SHARED_DEVICE=1 (slow without MPS)");
    }
    if (same_gpu && same_process) {
      throw_error(Status::kUnsupported,
                  fmt::format("ranks {} and {} are threads of one process on one GPU", own.rank, peer.rank),
                  "ranks that share a GPU must be processes");
    }
    if (!same_process && own.pid_namespace != peer.pid_namespace) {
      throw_error(Status::kUnsupported,
                  fmt::format("{} and {} are in different PID namespaces, where CUDA IPC does not work",
                              rank_and_gpu(own), rank_and_gpu(peer)),
                  "share the PID namespace (docker run --pid=container:NAME, Kubernetes shareProcessNamespace)");
    }
  }

  std::byte* open_same_process(const RankCard& own, const RankCard& peer) const {
    const cudaError_t error = cudaDeviceEnablePeerAccess(static_cast<int>(peer.device_ordinal), 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) (void)cudaGetLastError();
    if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
      no_access(own, peer, cuda_text("cudaDeviceEnablePeerAccess", error));
    return reinterpret_cast<std::byte*>(peer.window_pointer);
  }

  std::byte* open_other_process(const RankCard& own, const RankCard& peer) {
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, peer.window_handle, sizeof handle);
    void* base = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) no_access(own, peer, cuda_text("cudaIpcOpenMemHandle", error));
    opened_[opened_count_++] = base;
    return static_cast<std::byte*>(base) + peer.window_offset;
  }

  void no_ll128(const std::string& why) {
    lines_stay_whole_ = false;
    log_message(LogLevel::kInfo, "LL128 is not permitted: " + why);
  }

  [[noreturn]] static void no_access(const RankCard& own, const RankCard& peer, const std::string& why) {
    throw_error(Status::kUnsupported,
                fmt::format("{} cannot reach the memory of {}: {}", rank_and_gpu(own), rank_and_gpu(peer), why),
                "look at nvidia-smi topo -p2p r; GPUs without peer access need host staging, which is not there yet");
  }

  template <class Action>
  Status attempt(Action action) noexcept {
    try {
      action();
      return Status::kOk;
    } catch (const Error& error) {
      try {
        const std::lock_guard lock(text_mutex_);
        text_ = error.what();
      } catch (...) {
      }
      return error.status();
    } catch (...) {
      return Status::kSystem;
    }
  }

  Status failed(const char* what, cudaError_t error) noexcept {
    try {
      const std::lock_guard lock(text_mutex_);
      text_ = cuda_text(what, error);
    } catch (...) {
    }
    return Status::kSystem;
  }

  const ExecutorConfig config_;
  const int device_;
  CUcontext primary_ = nullptr;
  std::string refusal_;  // why no worker may stay; empty: one may, and is counted
  int budget_ = 0;
  cudaStream_t stream_ = nullptr;
  std::byte* window_ = nullptr;
  std::size_t window_bytes_ = 0;
  void* opened_[kMaxRanks] = {};
  int opened_count_ = 0;
  bool lines_stay_whole_ = true;
  std::byte* registered_ = nullptr;
  std::byte* mapped_ = nullptr;  // the same bytes, as the device sees them
  device::FaultPlan fault_;
  OwnMemory* own_ = nullptr;
  device::WorkerContext context_{};
  std::unique_ptr<CudaLaunched> launched_;
  PointerCache ranges_;
  mutable std::mutex text_mutex_;
  std::string text_;  // under text_mutex_
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const ExecutorConfig& config) {
  return std::make_unique<CudaExecutor>(config);
}

}  // namespace ringbell::host
