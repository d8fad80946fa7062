// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How this library calls CUDA inside somebody else's program: on the right device, in relaxed capture mode, without
// leaving a context or its own errors behind. Only for *_cuda.cpp files.
#ifndef RINGBELL_HOST_CUDA_CALL_HPP_
#define RINGBELL_HOST_CUDA_CALL_HPP_

#include <string>
#include <string_view>

#include <cuda.h>
#include <cuda_runtime.h>

#include "host/error.hpp"

namespace ringbell::host {

/// The driver's own function, as CUDA 12.0 defines it; null when the driver has none.
void* driver_function(const char* name) noexcept;

/// The primary context of `device`, the one that the runtime uses: retained, and kept until the process ends, because
/// a window that a peer did not let go of lives in it.
/// @throws Error kSystem with CUDA's words
CUcontext primary_context(int device);

/// For its lifetime the calling thread is on `context`, and calls that a capture in global mode would forbid are
/// allowed. Afterwards the thread is exactly as before, with the application's own context, or with none; an error that
/// a call in between left is cleared, the application's own stays.
class CudaScope {
 public:
  /// @param context of primary_context
  explicit CudaScope(CUcontext context) noexcept;
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const cudaError_t error_before_;
  bool pushed_ = false;
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
