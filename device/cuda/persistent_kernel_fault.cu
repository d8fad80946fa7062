// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The resident kernel with a planted fault (RINGBELL_FAULT): run_worker over FaultOps. A kernel of its own, so that the
// other has no trace of it. Not held to the register budget.
#include <cuda_runtime.h>

#include "device/cuda/fault_hook.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/launch_detail.cuh"
#include "device/group/group_cuda.cuh"
#include "device/mem/ops_cuda.cuh"
#include "device/worker/loop.hpp"

namespace ringbell::device {
namespace {

__global__ void __launch_bounds__(kMaxResidentThreads, 1)
    ringbell_resident_fault(const __grid_constant__ WorkerContext ctx, std::uint64_t generation, FaultPlan* plan) {
  if (threadIdx.x == 0) CudaFaultHook::slot() = plan;
  __syncthreads();
  CudaGroup group;
  run_worker<CudaFaultOps>(shared_context(ctx), group, generation);
}

}  // namespace

int load_fault_kernel(unsigned threads, KernelFigures* figures) noexcept {
  return load_kernel(ringbell_resident_fault, threads, figures);
}

int launch_fault_kernel(const WorkerContext& context, std::uint64_t generation, unsigned threads, FaultPlan* plan,
                        CUstream_st* stream) noexcept {
  return launch_cooperative(ringbell_resident_fault, 1, threads, stream, context, generation, plan);
}

}  // namespace ringbell::device
