// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The lanes of a CUDA worker: one CTA of whole warps, at least two. Warp 0 polls the queue, the last warp checks
// headers, eight neighbouring lanes move an LL128 line.
//
// Votes name their lanes in a mask, so lanes may come to them one by one; what a caller owes is that ALL lanes of the
// mask come, equally often.
#ifndef RINGBELL_DEVICE_GROUP_GROUP_CUDA_CUH_
#define RINGBELL_DEVICE_GROUP_GROUP_CUDA_CUH_

#include "device/group/group.hpp"

namespace ringbell::device {

class CudaGroup {
 public:
  static constexpr unsigned kWarpLanes = 32;
  static constexpr unsigned kLineLanes = 8;
  static constexpr unsigned kTeamQuads = 1;  // lanes 0 to 3 of the team read a quad each

  /// memory: __shared__; writer: the lanes, see GroupShared and agree().
  struct Storage {
    GroupShared shared;
    std::uint32_t worst;
  };

  /// The CTA's only one. Not a member: a pointer to it would cost a register pair in every function that is called.
  __device__ static Storage& storage() {
    __shared__ Storage the_storage;
    return the_storage;
  }

  __device__ unsigned lane() const { return here(threadIdx.x); }
  __device__ unsigned lanes() const { return here(blockDim.x); }
  __device__ GroupShared& shared() { return storage().shared; }

  __device__ void sync(Edge) { __syncthreads(); }
  __device__ Status agree(Status status, Edge) {
    if (__syncthreads_or(status != Status::kOk) == 0) return Status::kOk;
    return worst_of_all(status);
  }

  __device__ unsigned line_lane() const { return lane() % kLineLanes; }
  __device__ bool line_all(bool flag) { return __all_sync(line_mask(), flag) != 0; }
  __device__ void line_sync() { __syncwarp(line_mask()); }

  __device__ bool in_poll_team() const { return lane() < kWarpLanes; }
  __device__ bool in_header_team() const { return lane() + kWarpLanes >= lanes(); }
  __device__ unsigned team_lane() const { return lane() % kWarpLanes; }
  __device__ static constexpr unsigned team_lanes() { return kWarpLanes; }
  __device__ bool team_all(bool flag) { return __all_sync(kAllLanes, flag) != 0; }
  __device__ std::uint64_t team_broadcast(std::uint64_t word) {
    return __shfl_sync(kAllLanes, static_cast<unsigned long long>(word), 0);
  }
  __device__ void team_sync() { __syncwarp(kAllLanes); }

  __device__ bool claim_failure() { return atomicExch(&storage().shared.failure_taken, 1u) == 0; }

 private:
  static constexpr unsigned kAllLanes = 0xffffffffu;
  __device__ static unsigned line_mask() { return 0xffu << (threadIdx.x % kWarpLanes / kLineLanes * kLineLanes); }

  // No instruction, but what is computed from the value is computed here and not, for the whole kernel, at its start,
  // where each such value would occupy a register for good.
  __device__ static unsigned here(unsigned value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  // The lanes differ in what they saw. No barrier after the last read: the next agree() has one before its first write.
  __device__ RINGBELL_NOINLINE Status worst_of_all(Status status) {
    if (threadIdx.x == 0) storage().worst = 0;
    __syncthreads();
    atomicMax(&storage().worst, static_cast<std::uint32_t>(status));
    __syncthreads();
    return static_cast<Status>(storage().worst);
  }
};
static_assert(Group<CudaGroup>);

/// The kernel's argument in shared memory, for all lanes. Functions get the context by reference, and a reference to a
/// kernel parameter is read like global memory: from L2 (300 clocks) whenever an acquire has emptied L1, which each
/// call does several times. Measured: laying out two steps took 2,250 clocks with it.
__device__ inline const WorkerContext& shared_context(const WorkerContext& parameter) {
  __shared__ WorkerContext context;
  constexpr unsigned kWords = sizeof(WorkerContext) / sizeof(std::uint64_t);
  static_assert(sizeof(WorkerContext) % sizeof(std::uint64_t) == 0);
  const auto* from = reinterpret_cast<const std::uint64_t*>(&parameter);
  auto* to = reinterpret_cast<std::uint64_t*>(&context);
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) to[i] = from[i];
  __syncthreads();
  return context;
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_GROUP_GROUP_CUDA_CUH_
