// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which context a thread of somebody else's program is on while this library calls CUDA, and the driver's functions for
// it. Without linking libcuda: a box without a driver must load this library.
#include <fmt/format.h>

#include "host/cuda_call.hpp"

namespace ringbell::host {
namespace {

template <class Function>
Function* find(const char* name) noexcept {
  return reinterpret_cast<Function*>(driver_function(name));
}

struct ContextCalls {
  decltype(&cuCtxGetCurrent) get_current = find<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  decltype(&cuCtxPushCurrent) push = find<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(&cuCtxPopCurrent) pop = find<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");
};
const ContextCalls& context_calls() noexcept {
  static const ContextCalls calls;
  return calls;
}

}  // namespace

void* driver_function(const char* name) noexcept {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : nullptr;
}

CUcontext primary_context(int device) {
  const auto init = find<decltype(cuInit)>("cuInit");
  const auto get_device = find<decltype(cuDeviceGet)>("cuDeviceGet");
  const auto retain = find<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  const ContextCalls& calls = context_calls();
  if (init == nullptr || get_device == nullptr || retain == nullptr || calls.get_current == nullptr ||
      calls.push == nullptr || calls.pop == nullptr) {
    throw_error(Status::kSystem, "the driver has no functions for contexts", "update it");
  }
  CUdevice handle = 0;
  CUcontext context = nullptr;
  CUresult result = init(0);
  if (result == CUDA_SUCCESS) result = get_device(&handle, device);
  if (result == CUDA_SUCCESS) result = retain(&context, handle);
  // The two APIs number their errors alike.
  cuda_check(static_cast<cudaError_t>(result), fmt::format("cuDevicePrimaryCtxRetain of device {}", device),
             "see nvidia-smi -q -d COMPUTE: the device may be taken, or its mode exclusive");
  return context;
}

CudaScope::CudaScope(CUcontext context) noexcept : error_before_(cudaPeekAtLastError()) {
  CUcontext before = nullptr;
  const ContextCalls& calls = context_calls();
  // A thread without a context stays without one, and so does the device that it would use: setting a device back by
  // the runtime makes a context on it, hundreds of megabytes that nobody asked for.
  if (calls.get_current(&before) != CUDA_SUCCESS || before != context) pushed_ = calls.push(context) == CUDA_SUCCESS;
  cudaThreadExchangeStreamCaptureMode(&mode_);
}

CudaScope::~CudaScope() {
  cudaThreadExchangeStreamCaptureMode(&mode_);
  CUcontext context = nullptr;
  if (pushed_) (void)context_calls().pop(&context);
  if (error_before_ == cudaSuccess) (void)cudaGetLastError();
}

}  // namespace ringbell::host
