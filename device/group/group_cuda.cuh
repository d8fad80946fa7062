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
  __device__ bool all_here() const { return !alone() && !few(); }
  __device__ GroupShared& shared() { return storage().shared; }

  __device__ void sync(Edge edge) {
    if (of_slot(edge)) {
      if (lanes() == kWarpLanes) return team_sync();
      return named_barrier<kOfSlot>(lanes());
    }
    if (edge == Edge::kOpStart) return start();
    __syncthreads();
  }
  __device__ Status agree(Status status, Edge edge) {
    const bool failed = status != Status::kOk;
    if (of_slot(edge) ? lanes() == kWarpLanes : alone()) {
      team_sync();
      return __any_sync(kAllLanes, failed) == 0 ? Status::kOk : worst_of_warp(status);
    }
    if (of_slot(edge)) {
      return named_barrier_or<kOfSlot>(failed, lanes()) ? worst_of<kOfSlot>(status, lanes()) : Status::kOk;
    }
    if (few()) return named_barrier_or<kOfFew>(failed, kFew) ? worst_of<kOfFew>(status, kFew) : Status::kOk;
    return __syncthreads_or(failed) != 0 ? worst_of<kOfAll>(status, all_lanes()) : Status::kOk;
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

  // The hardware's barriers, 0 being __syncthreads's. A warp that has nothing to do in an operation does not come.
  static constexpr unsigned kOfAll = 0;
  static constexpr unsigned kOfSlot = 1;        // lanes that move lines
  static constexpr unsigned kStartHeaders = 2;  // poll team and header team
  static constexpr unsigned kStartOthers = 3;   // poll team and all but the header team
  static constexpr unsigned kOfFew = 4;         // poll team and header team
  static constexpr unsigned kFew = 2 * kWarpLanes;
  __device__ static constexpr bool of_slot(Edge edge) { return edge == Edge::kSlotRead || edge == Edge::kSlotFill; }
  /// Only the poll team moves lines, and only the header team is beside it.
  __device__ bool few() const { return lanes() == kWarpLanes; }

  __device__ void start() {
    if (in_header_team()) return named_barrier<kStartHeaders>(kFew);
    if (in_poll_team()) {
      if (alone()) return team_sync();
      __syncwarp(kAllLanes);
      // Does not wait for the header team.
      asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "n"(kStartHeaders), "r"(kFew) : "memory");
      if (few()) return;
    }
    named_barrier<kStartOthers>(all_lanes() - kWarpLanes);
  }

  // Aligned, as the other barriers are: the warp's lanes come together first. Numbers as immediates: a barrier named by
  // a register would reserve all sixteen.
  template <unsigned kBarrier>
  __device__ static void named_barrier(unsigned participants) {
    __syncwarp(kAllLanes);
    asm volatile("barrier.cta.sync.aligned %0, %1;" : : "n"(kBarrier), "r"(participants) : "memory");
  }
  template <unsigned kBarrier>
  __device__ static bool named_barrier_or(bool flag, unsigned participants) {
    unsigned any;
    __syncwarp(kAllLanes);
    asm volatile(
        "{ .reg .pred in, out; setp.ne.u32 in, %1, 0; barrier.cta.red.or.aligned.pred out, %2, %3, in; selp.u32 %0, 1, "
        "0, out; }"
        : "=r"(any)
        : "r"(static_cast<unsigned>(flag)), "n"(kBarrier), "r"(participants)
        : "memory");
    return any != 0;
  }

  // The lanes differ in what they saw.
  __device__ static RINGBELL_NOINLINE Status worst_of_warp(Status status) {
    auto worst = static_cast<unsigned>(status);
    RINGBELL_ROLLED
    for (unsigned apart = kWarpLanes / 2; apart != 0; apart /= 2) {
      const unsigned other = __shfl_xor_sync(kAllLanes, worst, apart);
      worst = other > worst ? other : worst;
    }
    return static_cast<Status>(worst);
  }
  // No barrier after the last read: the next agree() has one before its first write.
  template <unsigned kBarrier>
  __device__ static RINGBELL_NOINLINE Status worst_of(Status status, unsigned participants) {
    if (threadIdx.x == 0) storage().worst = 0;
    named_barrier<kBarrier>(participants);
    atomicMax(&storage().worst, static_cast<std::uint32_t>(status));
    named_barrier<kBarrier>(participants);
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
