// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel of a launched call, for host code that is not compiled by nvcc. Streams, captures and chains are the
// caller's (host/cuda_launched_cuda.cpp). An int returned is a cudaError_t; the caller has made the right device
// current.
#ifndef RINGBELL_DEVICE_CUDA_LAUNCHED_HPP_
#define RINGBELL_DEVICE_CUDA_LAUNCHED_HPP_

#include <cstdint>

#include "device/worker/launched_call.hpp"

struct CUstream_st;  // *: cudaStream_t, without the toolkit's headers

namespace ringbell::device {

struct FaultPlan;  // device/mem/ops_fault.hpp

/// Threads that a call is launched with: the lanes that have lines and a team for headers, at most as many as the
/// resident worker has.
unsigned launched_threads(const LaunchedCall& call) noexcept;

/// Loads the kernels of launched calls, so that no launch and no capture has to.
int load_launched_kernels() noexcept;

/// One CTA on `stream`, captured if the stream is. @param context of the stream way @param early let it start before
/// what is in front of it has ended (sm_90: programmatic dependent launch); it waits for that by itself
int launch_call(const WorkerContext& context, const LaunchedCall& call, bool early, CUstream_st* stream) noexcept;
/// The same with planted faults. @param plan device memory; the worker counts in it
int launch_call_fault(const WorkerContext& context, const LaunchedCall& call, FaultPlan* plan,
                      CUstream_st* stream) noexcept;
int load_launched_fault_kernel() noexcept;

/// close_launched of launched.hpp. @param closed device memory: 1 if none runs any more
int launch_close(LaunchedState* state, std::uint64_t limit_ns, std::uint64_t* closed, CUstream_st* stream) noexcept;

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CUDA_LAUNCHED_HPP_
