// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Launched calls of the CUDA executor: which stream, which capture, which order, and what must outlive the
// communicator because a graph may still be replayed. The kernel is device/cuda/launched_kernel.cu.
#ifndef RINGBELL_HOST_CUDA_LAUNCHED_HPP_
#define RINGBELL_HOST_CUDA_LAUNCHED_HPP_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/mem/ops_fault.hpp"
#include "device/worker/launched_call.hpp"
#include "host/clock.hpp"
#include "host/cuda_call.hpp"
#include "host/executor.hpp"

namespace ringbell::host {

/// Every call but launch() may come from any thread; launch() one at a time. Each makes the device current by itself.
/// @throws Error kInvalidArgument, kUnsupported: stream and remedy; kSystem: CUDA's words
class CudaLaunched {
 public:
  /// @param host context of the host way, complete
  CudaLaunched(CUcontext primary, int device, const device::WorkerContext& host, const device::Persistent& initial,
               const device::FaultPlan& fault);
  ~CudaLaunched();
  CudaLaunched(const CudaLaunched&) = delete;
  CudaLaunched& operator=(const CudaLaunched&) = delete;

  /// Of this device, and usable for that: only a launch can be part of a capture.
  void check(Stream stream, StreamUse use) const;
  void launch(Stream stream, const device::LaunchedCall& call);
  /// @param word as the device sees it
  void write(Stream stream, std::uint64_t* word, std::uint64_t value) const;
  /// @return kOk or kAgain
  [[nodiscard]] Status await(Stream stream, Deadline deadline) const;
  /// Waits for the calls that are on streams, replays aside.
  void await_calls(Deadline deadline) const noexcept;
  /// @return false if a launched call still runs at the deadline
  [[nodiscard]] bool close(Deadline deadline) noexcept;

 private:
  struct Memory;
  struct Capture;

  void make(const device::Persistent& initial, const device::FaultPlan& fault);
  void destroy() noexcept;
  [[nodiscard]] Capture capture_of(Stream stream) const;
  void keep_memory_with(cudaGraph_t graph);
  bool chain_capture(cudaStream_t stream, const Capture& capture);
  bool chain_eager(cudaStream_t stream, std::uint64_t id);
  void put(cudaStream_t stream, device::LaunchedCall call, bool early);

  const CUcontext primary_;
  const int device_;
  const bool early_;  // programmatic dependent launch
  std::shared_ptr<Memory> memory_;
  device::WorkerContext context_{};
  const bool faulty_;
  cudaStream_t side_ = nullptr;            // for close(): nothing else is on it
  std::uint64_t* closed_ = nullptr;        // pinned; what the kernel of close() answers
  std::uint64_t* closed_there_ = nullptr;  // the same word, as the device sees it
  bool is_closing_ = false;                // that kernel is on its stream
  // The chain of calls that are not captured.
  std::optional<std::uint64_t> last_stream_;  // cudaStreamGetId
  // The chains of captures, newest first. Nobody tells when one has ended: the oldest make room. More that are open at
  // once, and go on in turns over several streams, lose their order: their replays overlap, which is an error then.
  struct LastOfCapture {
    std::uint64_t capture;
    cudaGraphNode_t node;
  };
  static constexpr std::size_t kCaptures = 64;
  std::vector<LastOfCapture> captures_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CUDA_LAUNCHED_HPP_
