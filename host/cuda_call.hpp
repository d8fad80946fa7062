// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How this library calls the CUDA runtime inside somebody else's program: on the right device, in relaxed capture mode,
// without leaving its own errors behind. Only for *_cuda.cpp files.
#ifndef RINGBELL_HOST_CUDA_CALL_HPP_
#define RINGBELL_HOST_CUDA_CALL_HPP_

#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "host/error.hpp"

namespace ringbell::host {

/// For its lifetime the calling thread is on `device`, and calls that a capture in global mode would forbid are
/// allowed. Afterwards the thread is as before; an error that a call in between left is cleared, the application's own
/// stays.
class CudaScope {
 public:
  explicit CudaScope(int device) noexcept : error_before_(cudaPeekAtLastError()) {
    cudaGetDevice(&device_before_);
    if (device_before_ != device) cudaSetDevice(device);
    cudaThreadExchangeStreamCaptureMode(&mode_);
    device_ = device;
  }
  ~CudaScope() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    if (device_before_ != device_) cudaSetDevice(device_before_);
    if (error_before_ == cudaSuccess) (void)cudaGetLastError();
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const cudaError_t error_before_;
  int device_before_ = 0;
  int device_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// "cudaMalloc: out of memory (cudaErrorMemoryAllocation)".
inline std::string cuda_text(std::string_view call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
}

/// @throws Error kSystem with CUDA's words, unless `error` is success
inline void cuda_check(cudaError_t error, std::string_view call, std::string_view remedy = {}) {
  if (error != cudaSuccess) throw_error(Status::kSystem, cuda_text(call, error), remedy);
}

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CUDA_CALL_HPP_
