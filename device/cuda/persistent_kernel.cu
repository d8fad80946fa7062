// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The resident kernel: run_worker on one CTA. One launch is one generation of the worker. The instance with planted
// faults is persistent_kernel_fault.cu.
#include <cuda_runtime.h>

#include "device/cuda/launch.hpp"
#include "device/cuda/launch_detail.cuh"
#include "device/group/group_cuda.cuh"
#include "device/mem/ops_cuda.cuh"
#include "device/worker/loop.hpp"

namespace ringbell::device {
namespace {

// Two CTAs an SM would fit: at most 64 registers a thread, so that the worker leaves half of its SM to others.
__global__ void __launch_bounds__(kMaxResidentThreads, 2)
    ringbell_resident(const __grid_constant__ WorkerContext ctx, std::uint64_t generation) {
  CudaGroup group;
  run_worker<CudaOps>(shared_context(ctx), group, generation);
}

}  // namespace

int load_resident_kernel(unsigned threads, KernelFigures* figures) noexcept {
  return load_kernel(ringbell_resident, threads, figures);
}

int launch_resident_kernel(const WorkerContext& context, std::uint64_t generation, unsigned threads, bool stays,
                           CUstream_st* stream) noexcept {
  if (!stays) return launch_one_cta(ringbell_resident, threads, stream, nullptr, context, generation);
  return launch_cooperative(ringbell_resident, 1, threads, stream, context, generation);
}

}  // namespace ringbell::device
