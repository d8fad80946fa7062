// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "device/cuda/launched.hpp"
#include "host/cuda_launched.hpp"

namespace ringbell::host {
namespace {

struct StreamCalls {
  decltype(&cuStreamGetCtx) get_context =
      reinterpret_cast<decltype(&cuStreamGetCtx)>(driver_function("cuStreamGetCtx"));
  decltype(&cuStreamWriteValue64) write =
      reinterpret_cast<decltype(&cuStreamWriteValue64)>(driver_function("cuStreamWriteValue64"));
};
const StreamCalls& stream_calls() noexcept {
  static const StreamCalls calls;
  return calls;
}

/// The legacy stream and the thread's own one belong to whatever device is current.
bool is_of_current_device(cudaStream_t stream) noexcept {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/// A capture that somebody else's call has invalidated, or that this one may not join, is no failure of the device.
void stream_check(cudaError_t error, std::string_view call) {
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread) {
    throw_error(Status::kInvalidArgument, cuda_text(call, error),
                "end the capture (cudaStreamEndCapture) and begin a new one");
  }
  cuda_check(error, call);
}

std::uint64_t stream_id(cudaStream_t stream) {
  unsigned long long id = 0;
  stream_check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
  return id;
}

void nap() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

/// Memory that no graph needs any more. A graph's end may be told on a thread that must not call CUDA, so it is put
/// here and freed when a communicator comes or goes, and never under a call that is still on a slow stream.
class RetiredMemory {
 public:
  static RetiredMemory& of_process() {
    static auto* const retired = new RetiredMemory;  // outlives every static that holds a graph
    return *retired;
  }
  struct Item {
    CUcontext context;
    void* memory;
    cudaEvent_t last;  // behind the last call that may look at it; null: there was none
  };
  void add(const Item& item) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      memory_.push_back(item);
    } catch (...) {
      // Kept until the process ends.
    }
  }
  void free_all() noexcept {
    std::vector<Item> items;
    {
      const std::lock_guard lock(mutex_);
      items.swap(memory_);
    }
    for (const Item& item : items) {
      const CudaScope scope(item.context);
      if (item.last != nullptr && cudaEventQuery(item.last) == cudaErrorNotReady) {
        add(item);
        continue;
      }
      if (item.last != nullptr) cudaEventDestroy(item.last);
      cudaFree(item.memory);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Item> memory_;
};

}  // namespace

/// Device memory of the launched calls. Owned by the communicator and by every graph that has one of them.
struct CudaLaunched::Memory {
  struct Layout {
    device::LaunchedState state;
    device::FaultPlan fault;
  };

  CUcontext context = nullptr;
  Layout* at = nullptr;
  cudaEvent_t last = nullptr;  // behind the newest call that was not captured

  ~Memory() {
    if (at != nullptr) RetiredMemory::of_process().add({context, at, last});
  }
};

struct CudaLaunched::Capture {
  bool active = false;
  std::uint64_t id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;  // that the next node will depend on
  std::size_t count = 0;
};

namespace {

cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t* before, cudaGraphEdgeData* edges,
                            std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependencies(node, before, edges, count);
#else
  return cudaGraphNodeGetDependencies_v2(node, before, edges, count);
#endif
}

/// Does a node that depends on `nodes` come after `wanted` already? Looks at so many nodes before them, which covers
/// the few between two calls of one stream; "no" where that does not reach: an edge too many costs little.
bool comes_after(const cudaGraphNode_t* nodes, std::size_t count, cudaGraphNode_t wanted) {
  constexpr unsigned kLooks = 256;
  std::deque<cudaGraphNode_t> next(nodes, nodes + count);
  std::set<cudaGraphNode_t> seen(nodes, nodes + count);
  for (unsigned looks = 0; !next.empty() && looks < kLooks; ++looks) {
    if (next.front() == wanted) return true;
    std::size_t before = 0;
    stream_check(dependencies_of(next.front(), nullptr, nullptr, &before), "cudaGraphNodeGetDependencies");
    std::vector<cudaGraphNode_t> found(before);
    std::vector<cudaGraphEdgeData> edges(before);  // asked for: an edge that has data is refused otherwise
    if (before != 0) {
      stream_check(dependencies_of(next.front(), found.data(), edges.data(), &before), "cudaGraphNodeGetDependencies");
    }
    next.pop_front();
    for (const cudaGraphNode_t node : found) {
      if (seen.insert(node).second) next.push_back(node);
    }
  }
  return false;
}

bool starts_early(int device) {
  int major = 0;
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 9;
}

}  // namespace

CudaLaunched::CudaLaunched(CUcontext primary, int device, const device::WorkerContext& host,
                           const device::Persistent& initial, const device::FaultPlan& fault)
    : primary_(primary),
      device_(device),
      early_(starts_early(device)),
      memory_(std::make_shared<Memory>()),
      faulty_(fault.kind != device::FaultKind::kNone) {
  const CudaScope scope(primary_);
  try {
    make(initial, fault);
  } catch (...) {
    destroy();
    throw;
  }
  context_ = device::stream_context(host);
}

void CudaLaunched::make(const device::Persistent& initial, const device::FaultPlan& fault) {
  RetiredMemory::of_process().free_all();
  cuda_check(static_cast<cudaError_t>(device::load_launched_kernels()), "loading the launched kernel");
  if (faulty_)
    cuda_check(static_cast<cudaError_t>(device::load_launched_fault_kernel()), "loading the launched kernel");
  cuda_check(cudaMalloc(reinterpret_cast<void**>(&memory_->at), sizeof(Memory::Layout)), "cudaMalloc");
  memory_->context = primary_;
  Memory::Layout first{};
  first.state = device::launched_state(initial);
  first.fault = fault;
  cuda_check(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  cuda_check(cudaMemcpyAsync(memory_->at, &first, sizeof first, cudaMemcpyHostToDevice, side_), "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(side_), "cudaStreamSynchronize");
  cuda_check(cudaEventCreateWithFlags(&memory_->last, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  cuda_check(cudaHostAlloc(reinterpret_cast<void**>(&closed_), sizeof *closed_, cudaHostAllocMapped), "cudaHostAlloc");
  cuda_check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&closed_there_), closed_, 0),
             "cudaHostGetDevicePointer");
}

void CudaLaunched::destroy() noexcept {
  if (closed_ != nullptr) cudaFreeHost(closed_);
  if (side_ != nullptr) cudaStreamDestroy(side_);
}

CudaLaunched::~CudaLaunched() {
  const CudaScope scope(primary_);
  destroy();
  memory_.reset();
  RetiredMemory::of_process().free_all();
}

CudaLaunched::Capture CudaLaunched::capture_of(Stream stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  Capture capture;
  const cudaGraphEdgeData* edges = nullptr;
  auto* const cuda_stream = static_cast<cudaStream_t>(stream);
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaStreamGetCaptureInfo(cuda_stream, &status, &id, &capture.graph, &capture.nodes, &edges, &capture.count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo_v3(cuda_stream, &status, &id, &capture.graph, &capture.nodes, &edges, &capture.count);
#endif
  if (error != cudaSuccess) {
    throw_error(Status::kInvalidArgument, cuda_text(fmt::format("stream {}: cudaStreamGetCaptureInfo", stream), error),
                "give a stream of this rank's device that no invalidated or implicit capture holds");
  }
  if (status == cudaStreamCaptureStatusInvalidated) {
    throw_error(Status::kInvalidArgument, fmt::format("stream {} is in a capture that has been invalidated", stream),
                "end the capture (cudaStreamEndCapture) and begin a new one");
  }
  capture.active = status == cudaStreamCaptureStatusActive;
  capture.id = id;
  return capture;
}

void CudaLaunched::check(Stream stream, StreamUse use) const {
  auto* const cuda_stream = static_cast<cudaStream_t>(stream);
  if (is_of_current_device(cuda_stream)) {
    int current = -1;
    cuda_check(cudaGetDevice(&current), "cudaGetDevice");
    if (current != device_) {
      throw_error(Status::kInvalidArgument,
                  fmt::format("the default stream is that of device {}, this rank runs on device {}", current, device_),
                  "make the rank's device current, or give a stream of it");
    }
  } else if (stream_calls().get_context != nullptr) {
    CUcontext context = nullptr;
    const CUresult result = stream_calls().get_context(cuda_stream, &context);
    if (result != CUDA_SUCCESS) {
      throw_error(Status::kInvalidArgument,
                  fmt::format("{} is no stream (cuStreamGetCtx answers {})", stream, static_cast<int>(result)),
                  "give a cudaStream_t that has not been destroyed");
    }
    if (context != primary_) {
      throw_error(Status::kInvalidArgument, fmt::format("stream {} is not one of device {}", stream, device_),
                  "give a stream that was made while the rank's device was current");
    }
  }
  const CudaScope scope(primary_);
  if (use != StreamUse::kLaunch && capture_of(stream).active) {
    throw_error(
        Status::kInvalidArgument,
        fmt::format("stream {} is under capture, and of all calls only all_reduce_on can be part of a graph", stream),
        "end the capture");
  }
  if (use == StreamUse::kAfter && stream_calls().write == nullptr) {
    throw_error(Status::kUnsupported, "the driver has no cuStreamWriteValue64", "update it, or use all_reduce_on");
  }
}

// The graph, and every executable made from it, holds the memory: a replay after the communicator has gone reads there
// that it is closed.
void CudaLaunched::keep_memory_with(cudaGraph_t graph) {
  auto owner = std::make_unique<std::shared_ptr<Memory>>(memory_);
  cudaUserObject_t object = nullptr;
  cuda_check(cudaUserObjectCreate(
                 &object, owner.get(), [](void* held) { delete static_cast<std::shared_ptr<Memory>*>(held); }, 1,
                 cudaUserObjectNoDestructorSync),
             "cudaUserObjectCreate");
  (void)owner.release();
  const cudaError_t error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (error != cudaSuccess) cudaUserObjectRelease(object, 1);
  stream_check(error, "cudaGraphRetainUserObject");
}

// In one capture: after the node before, whichever of its streams that came from. @return true if an edge was added
bool CudaLaunched::chain_capture(cudaStream_t stream, const Capture& capture) {
  const auto known = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const LastOfCapture& last) { return last.capture == capture.id; });
  if (known == captures_.end()) {
    keep_memory_with(capture.graph);
    captures_.insert(captures_.begin(), LastOfCapture{capture.id, nullptr});
    if (captures_.size() > kCaptures) captures_.pop_back();
    return false;
  }
  std::rotate(captures_.begin(), known, known + 1);
  cudaGraphNode_t last = captures_.front().node;
  if (last == nullptr || comes_after(capture.nodes, capture.count, last)) return false;
#if CUDART_VERSION >= 13000
  stream_check(cudaStreamUpdateCaptureDependencies(stream, &last, nullptr, 1, cudaStreamAddCaptureDependencies),
               "cudaStreamUpdateCaptureDependencies");
#else
  stream_check(cudaStreamUpdateCaptureDependencies(stream, &last, 1, cudaStreamAddCaptureDependencies),
               "cudaStreamUpdateCaptureDependencies");
#endif
  return true;
}

// @return true if the stream was made to wait
bool CudaLaunched::chain_eager(cudaStream_t stream, std::uint64_t id) {
  // One handle names every thread's own stream: whose it was last time, it does not say.
  if (!last_stream_ || (id == *last_stream_ && stream != cudaStreamPerThread)) return false;
  stream_check(cudaStreamWaitEvent(stream, memory_->last, 0), "cudaStreamWaitEvent");
  return true;
}

void CudaLaunched::put(cudaStream_t stream, device::LaunchedCall call, bool early) {
  call.state = &memory_->at->state;
  const int error = faulty_ ? device::launch_call_fault(context_, call, &memory_->at->fault, stream)
                            : device::launch_call(context_, call, early, stream);
  stream_check(static_cast<cudaError_t>(error), "launching a call");
}

void CudaLaunched::launch(Stream stream, const device::LaunchedCall& call) {
  const CudaScope scope(primary_);
  auto* const cuda_stream = static_cast<cudaStream_t>(stream);
  const Capture capture = capture_of(stream);
  if (capture.active) {
    // A node that waits for several others, or for none, has nothing to start early beside.
    const bool joined = chain_capture(cuda_stream, capture);
    put(cuda_stream, call, early_ && !joined && capture.count == 1);
    const Capture after = capture_of(stream);
    captures_.front().node = after.count == 1 ? after.nodes[0] : nullptr;
    return;
  }
  const std::uint64_t id = stream_id(cuda_stream);
  const bool joined = chain_eager(cuda_stream, id);
  put(cuda_stream, call, early_ && !joined);
  // Now, and not when another stream asks: this one may have been destroyed by then. The call is on the stream:
  // whatever keeps it from being counted breaks the communicator.
  cuda_check(cudaEventRecord(memory_->last, cuda_stream), "cudaEventRecord");
  last_stream_ = id;
}

void CudaLaunched::write(Stream stream, std::uint64_t* word, std::uint64_t value) const {
  const CudaScope scope(primary_);
  // Without CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER: what was in the stream before is visible first.
  const CUresult result =
      stream_calls().write(static_cast<CUstream>(stream), reinterpret_cast<CUdeviceptr>(word), value, 0);
  if (result == CUDA_SUCCESS) return;
  // All the same a capture that began after check(): the command is half in the queue.
  throw_error(Status::kSystem,
              fmt::format("cuStreamWriteValue64 on stream {} answers {}", stream, static_cast<int>(result)));
}

Status CudaLaunched::await(Stream stream, Deadline deadline) const {
  const CudaScope scope(primary_);
  // Also for a caller that only looks: an event that is recorded now has not happened yet.
  if (cudaStreamQuery(static_cast<cudaStream_t>(stream)) == cudaSuccess) return Status::kOk;
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  cudaError_t error = cudaEventRecord(event, static_cast<cudaStream_t>(stream));
  constexpr unsigned kSpins = 1u << 14;
  for (unsigned polls = 0; error == cudaSuccess; ++polls) {
    error = cudaEventQuery(event);
    if (error != cudaErrorNotReady) break;
    error = cudaSuccess;
    if (deadline.expired()) {
      cudaEventDestroy(event);
      return Status::kAgain;
    }
    if (polls > kSpins) nap();
  }
  cudaEventDestroy(event);
  cuda_check(error, "waiting for the stream");
  return Status::kOk;
}

// Each waits for the one before.
void CudaLaunched::await_calls(Deadline deadline) const noexcept {
  const CudaScope scope(primary_);
  while (cudaEventQuery(memory_->last) == cudaErrorNotReady && !deadline.expired()) nap();
}

// Nothing here waits for the device: the kernel that closes waits for room like any other.
bool CudaLaunched::close(Deadline deadline) noexcept {
  constexpr std::uint64_t kLookNs = 20'000'000;
  const CudaScope scope(primary_);
  const Deadline one_look = Deadline::after_ns(2 * kLookNs);
  for (;;) {
    if (!is_closing_) {
      *closed_ = 0;
      if (device::launch_close(&memory_->at->state, kLookNs, closed_there_, side_) != 0) return true;
      is_closing_ = true;
    }
    const cudaError_t error = cudaStreamQuery(side_);
    is_closing_ = error == cudaErrorNotReady;
    if (!is_closing_) {
      if (error != cudaSuccess) return true;  // a device that failed runs nothing any more
      if (*static_cast<volatile std::uint64_t*>(closed_) != 0) return true;
    }
    if (deadline.expired() && one_look.expired()) return false;
    if (is_closing_) nap();
  }
}

}  // namespace ringbell::host
