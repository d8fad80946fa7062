// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels, for host code that is not compiled by nvcc: load them and launch them. Devices, streams, when to launch
// and error texts are the caller's (host/cuda_executor_cuda.cpp). An int returned is a cudaError_t; the caller has made
// the right device current.
#ifndef RINGBELL_DEVICE_CUDA_LAUNCH_HPP_
#define RINGBELL_DEVICE_CUDA_LAUNCH_HPP_

#include <cstddef>
#include <cstdint>

#include "device/worker/context.hpp"

struct CUstream_st;  // *: cudaStream_t, without the toolkit's headers

namespace ringbell::device {

inline constexpr unsigned kMaxResidentThreads = 512;
inline constexpr unsigned kMinResidentThreads = 64;  // poll team and header team
inline constexpr unsigned kResidentThreads = 512;

/// What the driver says of the loaded kernel on the current device.
struct KernelFigures {
  int registers = 0;            // a thread
  std::size_t local_bytes = 0;  // a thread
  std::size_t shared_bytes = 0;
  int ctas_per_sm = 0;  // that fit on an empty SM
};

/// Loads the resident kernel now, so that no launch ever has to (a lazy load waits for an idle device).
int load_resident_kernel(unsigned threads, KernelFigures* figures) noexcept;

/// One cooperative launch of one CTA, in the default memory-sync domain: publish_completion relies on it. Returns when
/// it is queued. @param threads multiple of 32, kMinResidentThreads to kMaxResidentThreads
/// @param stays false: the worker leaves after a call, and no cooperative launch is asked of the device
int launch_resident_kernel(const WorkerContext& context, std::uint64_t generation, unsigned threads, bool stays,
                           CUstream_st* stream) noexcept;

struct FaultPlan;  // device/mem/ops_fault.hpp
/// The same two for the kernel that spoils a publish. @param plan device memory; the worker counts in it
int load_fault_kernel(unsigned threads, KernelFigures* figures) noexcept;
int launch_fault_kernel(const WorkerContext& context, std::uint64_t generation, unsigned threads, FaultPlan* plan,
                        CUstream_st* stream) noexcept;

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CUDA_LAUNCH_HPP_
