// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Planted faults in a CUDA worker: where its plan is, and how lanes count. For the *_fault.cu kernels alone.
#ifndef RINGBELL_DEVICE_CUDA_FAULT_HOOK_CUH_
#define RINGBELL_DEVICE_CUDA_FAULT_HOOK_CUH_

#include "device/mem/ops_cuda.cuh"
#include "device/mem/ops_fault.hpp"

namespace ringbell::device {

/// The plan of the CTA's rank; models FaultOps' Hook.
struct CudaFaultHook {
  __device__ static FaultPlan*& slot() {
    __shared__ FaultPlan* the_plan;
    return the_plan;
  }
  __device__ static FaultPlan* plan() { return slot(); }
  __device__ static std::uint64_t count_publish(FaultPlan& plan) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(&plan.published), 1ull) + 1;
  }
};
using CudaFaultOps = FaultOps<CudaOps, CudaFaultHook>;
static_assert(MemOps<CudaFaultOps>);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CUDA_FAULT_HOOK_CUH_
