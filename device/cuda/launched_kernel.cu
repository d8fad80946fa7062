// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel of a launched call: run_launched on one CTA. The instance with planted faults is launched_kernel_fault.cu.
#include <cuda_runtime.h>

#include "device/cuda/launch.hpp"
#include "device/cuda/launch_detail.cuh"
#include "device/cuda/launched.hpp"
#include "device/group/group_cuda.cuh"
#include "device/mem/ops_cuda.cuh"
#include "device/worker/launched.hpp"

namespace ringbell::device {
namespace {

// Launched early, it stands here until all that was in front of it on its stream has ended and is visible: epochs and
// input are read after this. Without that attribute, and before sm_90, there is nothing to wait for.
__device__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// One for each algorithm: the host knows which it is.
template <Algorithm kAlgorithm>
__global__ void __launch_bounds__(kMaxResidentThreads, 2)
    ringbell_launched(const __grid_constant__ WorkerContext ctx, const __grid_constant__ LaunchedCall call) {
  const WorkerContext& shared = shared_context(ctx);
  wait_for_stream();
  CudaGroup group;
  run_launched<CudaOps, kAlgorithm>(shared, group, call);
}

__global__ void ringbell_close(LaunchedState* state, std::uint64_t limit_ns, std::uint64_t* closed) {
  *closed = close_launched<CudaOps>(state, limit_ns) ? 1 : 0;
}

}  // namespace

unsigned launched_threads(const LaunchedCall& call) noexcept {
  const Command command = command_unpack(call.command);
  const unsigned lanes =
      command_lines(call.command) * (command.protocol == Protocol::kLL128 ? CudaGroup::kLineLanes : 1);
  const unsigned warps = lanes == 0 ? 1 : (lanes + CudaGroup::kWarpLanes - 1) / CudaGroup::kWarpLanes;
  const unsigned threads = (warps + 1) * CudaGroup::kWarpLanes;
  return threads < kResidentThreads ? threads : kResidentThreads;
}

int load_launched_kernels() noexcept {
  int error = load_kernel(ringbell_launched<Algorithm::kRing>, kResidentThreads, nullptr);
  if (error == 0) error = load_kernel(ringbell_launched<Algorithm::kOneShot>, kResidentThreads, nullptr);
  return error != 0 ? error : load_kernel(ringbell_close, 1, nullptr);
}

int launch_call(const WorkerContext& context, const LaunchedCall& call, bool early, CUstream_st* stream) noexcept {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const auto kernel = command_algorithm(call.command) == Algorithm::kOneShot ? ringbell_launched<Algorithm::kOneShot>
                                                                             : ringbell_launched<Algorithm::kRing>;
  return launch_one_cta(kernel, launched_threads(call), stream, early ? &attribute : nullptr, context, call);
}

int launch_close(LaunchedState* state, std::uint64_t limit_ns, std::uint64_t* closed, CUstream_st* stream) noexcept {
  return launch_one_cta(ringbell_close, 1, stream, nullptr, state, limit_ns, closed);
}

}  // namespace ringbell::device
