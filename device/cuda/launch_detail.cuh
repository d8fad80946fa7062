// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What the .cu files here share to load and launch a kernel through the CUDA runtime. Not for host code.
#ifndef RINGBELL_DEVICE_CUDA_LAUNCH_DETAIL_CUH_
#define RINGBELL_DEVICE_CUDA_LAUNCH_DETAIL_CUH_

#include <cuda_runtime.h>

#include "device/cuda/launch.hpp"

namespace ringbell::device {

/// Asking for a kernel's attributes loads it.
template <class... Arguments>
int load_kernel(void (*kernel)(Arguments...), unsigned threads, KernelFigures* figures) noexcept {
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  int ctas = 0;
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, kernel, static_cast<int>(threads), 0);
  }
  if (figures != nullptr) {
    *figures = {attributes.numRegs, attributes.localSizeBytes, attributes.sharedSizeBytes, ctas};
  }
  return static_cast<int>(error);
}

/// One CTA. @param attribute may be null
template <class... Arguments>
int launch_one_cta(void (*kernel)(Arguments...), unsigned threads, cudaStream_t stream, cudaLaunchAttribute* attribute,
                   Arguments... arguments) noexcept {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = attribute == nullptr ? 0 : 1;
  void* values[] = {static_cast<void*>(&arguments)...};
  return static_cast<int>(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), values));
}

/// Cooperative: the launch is refused, and not half started, where the CTAs cannot all be resident.
template <class... Arguments>
int launch_cooperative(void (*kernel)(Arguments...), unsigned ctas, unsigned threads, cudaStream_t stream,
                       Arguments... arguments) noexcept {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* values[] = {static_cast<void*>(&arguments)...};
  return static_cast<int>(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), values));
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CUDA_LAUNCH_DETAIL_CUH_
