// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The lanes of a CUDA worker: one CTA of whole warps, at least two. Warp 0 polls the queue, the last warp checks
// headers, eight neighbouring lanes move an LL128 line. A short message takes few warps: those that have no line would
// still issue the code of every step (900 clocks), and the lines of one warp need no barrier.
//
// Votes name their lanes in a mask, so lanes may come to them one by one; what a caller owes is that ALL lanes of the
// mask come, equally often.
#ifndef RINGBELL_DEVICE_GROUP_GROUP_CUDA_CUH_
#define RINGBELL_DEVICE_GROUP_GROUP_CUDA_CUH_

#include "device/group/group.hpp"

namespace ringbell::device {

class CudaGroup {
 public:
  static constexpr bool kMayBeOneTeam = false;
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
  __device__ unsigned all_lanes() const { return here(blockDim.x); }
  // Not a member: `this` is passed to functions that are called, and a member would live in local memory.
  __device__ unsigned lanes() const { return storage().shared.lanes; }
  __device__ bool alone() const { return storage().shared.alone; }
  __device__ GroupShared& shared() { return storage().shared; }

  __device__ void sync(Edge edge) {
    if (of_slot(edge)) {
      const unsigned participants = lanes();
      participants == kWarpLanes ? team_sync() : slot_barrier(participants);
    } else if (edge == Edge::kOpStart && in_poll_team() && alone()) {
      team_sync();
    } else {
      __syncthreads();
    }
  }
  __device__ Status agree(Status status, Edge edge) {
    const unsigned participants = of_slot(edge) ? lanes() : alone() ? kWarpLanes : all_lanes();
    if (!any(status != Status::kOk, edge, participants)) return Status::kOk;
    return worst_of(status, edge, participants);
  }

  __device__ unsigned line_lane() const { return lane() % kLineLanes; }
  __device__ bool line_all(bool flag) { return __all_sync(line_mask(), flag) != 0; }
  __device__ void line_sync() { __syncwarp(line_mask()); }
  // Lanes that came to a barrier of a warp apart may go on apart: it does no more than its name says. Either a line's
  // lanes are all here, or none of them sees all.
  __device__ bool line_together() {
    unsigned here_now;
    asm volatile("activemask.b32 %0;" : "=r"(here_now) : : "memory");
    return (here_now & line_mask()) == line_mask();
  }

  __device__ bool in_poll_team() const { return lane() < kWarpLanes; }
  __device__ bool in_header_team() const { return lane() + kWarpLanes >= all_lanes(); }
  __device__ bool in_layout_team() const { return lane() / kWarpLanes == (lanes() == kWarpLanes ? 0 : 1); }
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

  // Barrier 0 is the one of all lanes, 1 that of the operation's.
  __device__ static constexpr bool of_slot(Edge edge) { return edge == Edge::kSlotRead || edge == Edge::kSlotFill; }
  // Aligned, as the other barriers are: the warp's lanes come together first. Numbers as immediates: a barrier named by
  // a register would reserve all sixteen.
  __device__ static void slot_barrier(unsigned participants) {
    __syncwarp(kAllLanes);
    asm volatile("barrier.cta.sync.aligned 1, %0;" : : "r"(participants) : "memory");
  }
  __device__ static bool slot_barrier_or(bool flag, unsigned participants) {
    unsigned any;
    __syncwarp(kAllLanes);
    asm volatile(
        "{ .reg .pred in, out; setp.ne.u32 in, %1, 0; barrier.cta.red.or.aligned.pred out, 1, %2, in; selp.u32 %0, 1, "
        "0, out; }"
        : "=r"(any)
        : "r"(static_cast<unsigned>(flag)), "r"(participants)
        : "memory");
    return any != 0;
  }
  /// A barrier. @return true to all participants if `flag` is true for any
  __device__ bool any(bool flag, Edge edge, unsigned participants) {
    if (participants == kWarpLanes) {
      team_sync();
      return __any_sync(kAllLanes, flag) != 0;
    }
    return of_slot(edge) ? slot_barrier_or(flag, participants) : __syncthreads_or(flag) != 0;
  }
  __device__ void wide_barrier(Edge edge, unsigned participants) {
    of_slot(edge) ? slot_barrier(participants) : __syncthreads();
  }

  // The lanes differ in what they saw. No barrier after the last read: the next agree() has one before its first write.
  __device__ RINGBELL_NOINLINE Status worst_of(Status status, Edge edge, unsigned participants) {
    if (participants == kWarpLanes) {
      return static_cast<Status>(__reduce_max_sync(kAllLanes, static_cast<unsigned>(status)));
    }
    if (threadIdx.x == 0) storage().worst = 0;
    wide_barrier(edge, participants);
    atomicMax(&storage().worst, static_cast<std::uint32_t>(status));
    wide_barrier(edge, participants);
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
