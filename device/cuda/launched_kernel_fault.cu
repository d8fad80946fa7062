// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel of a launched call with planted faults (RINGBELL_FAULT).
#include <cuda_runtime.h>

#include "device/cuda/fault_hook.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/launch_detail.cuh"
#include "device/cuda/launched.hpp"
#include "device/group/group_cuda.cuh"
#include "device/worker/launched.hpp"

namespace ringbell::device {
namespace {

__global__ void __launch_bounds__(kMaxResidentThreads, 1)
    ringbell_launched_fault(const __grid_constant__ WorkerContext ctx, const __grid_constant__ LaunchedCall call,
                            FaultPlan* plan) {
  if (threadIdx.x == 0) CudaFaultHook::slot() = plan;
  __syncthreads();
  CudaGroup group;
  run_launched<CudaFaultOps>(shared_context(ctx), group, call);
}

}  // namespace

int load_launched_fault_kernel() noexcept { return load_kernel(ringbell_launched_fault, kResidentThreads, nullptr); }

int launch_call_fault(const WorkerContext& context, const LaunchedCall& call, FaultPlan* plan,
                      CUstream_st* stream) noexcept {
  return launch_one_cta(ringbell_launched_fault, launched_threads(call), stream, nullptr, context, call, plan);
}

}  // namespace ringbell::device
