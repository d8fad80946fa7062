// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The machine's GPUs, by the CUDA runtime.
#include <cuda_runtime_api.h>

#include "tools/machine.hpp"

namespace ringbell::tools {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

CudaMachine describe_cuda() {
  CudaMachine machine;
  int value = 0;
  if (cudaRuntimeGetVersion(&value) == cudaSuccess) machine.runtime = version_text(value);
  if (cudaDriverGetVersion(&value) == cudaSuccess && value != 0) machine.driver_supports = version_text(value);
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) machine.gpus.emplace_back(properties.name);
  }
  static_cast<void>(cudaGetLastError());
  return machine;
}

}  // namespace ringbell::tools
