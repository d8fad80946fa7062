// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The torn-line kernel. It stores and reads lines by the very operations and lanes of the protocols: 8 lanes a line,
// flag in the last, the data read again once the flag is there.
#include <cuda_runtime.h>

#include "device/cuda/launch_detail.cuh"
#include "device/cuda/torn_line.hpp"
#include "device/mem/ops_cuda.cuh"

namespace ringbell::device {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kLineLanes = kLl128Quads;
constexpr unsigned kFlagQuad = kLl128Quads - 1;
constexpr unsigned kPollsPerLook = 256;

/// Different in every word of every line of every pass, so that no old word passes for a new one.
__device__ std::uint64_t pattern(std::uint64_t pass, unsigned line, unsigned word) {
  std::uint64_t x = (pass * kTornLines + line) * 2 * kLl128Quads + word + 1;
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

/// Polls until `ready` or the end of the time. @return ready
template <class Ready>
__device__ bool poll_until(std::uint64_t end_ns, Ready ready) {
  for (unsigned polls = 1; !ready(); ++polls) {
    if (polls % kPollsPerLook == 0 && CudaOps::now_ns() > end_ns) return false;
  }
  return true;
}

__device__ unsigned line_mask() { return 0xffu << (threadIdx.x % 32 / kLineLanes * kLineLanes); }
/// The vote of the eight lanes of a line.
__device__ bool line_all(bool flag) { return __all_sync(line_mask(), flag) != 0; }

/// Stores pass after pass into `to`; goes on when the receiver says in `back` that it has checked the one before.
__device__ void store_lines(TornRegion* to, const TornRegion* back, std::uint64_t end_ns) {
  const unsigned quad = threadIdx.x % kLineLanes;
  for (std::uint64_t pass = 0; pass < kTornPasses; ++pass) {
    bool go_on = true;
    if (threadIdx.x == 0) {
      go_on = poll_until(end_ns, [&] { return CudaOps::load_acquire(&back->passes_checked, Edge::kCredit) >= pass; });
    }
    if (__syncthreads_and(go_on) == 0) return;
    RINGBELL_ROLLED
    for (unsigned line = threadIdx.x / kLineLanes; line < kTornLines; line += kThreads / kLineLanes) {
      Quad value{pattern(pass, line, 2 * quad), pattern(pass, line, 2 * quad + 1)};
      if (quad == kFlagQuad) value.hi = ll128_flag(pass);
      // One instruction of lanes that came together, as Ll128Protocol::send_line does of lanes that are together.
      __syncwarp(line_mask());
      CudaOps::publish_quad(&to->ll128[line].quad[quad], value);
    }
    for (unsigned line = threadIdx.x; line < kTornLines; line += kThreads) {
      CudaOps::publish_ll(&to->ll[line], ll_pack(pattern(pass, line, 0), ll_flag(pass)));
    }
  }
}

/// Checks this lane's quads of one pass. @return false when a line did not come in time
__device__ bool check_ll128(const TornRegion* from, std::uint64_t pass, std::uint64_t end_ns, unsigned* torn) {
  const unsigned quad = threadIdx.x % kLineLanes;
  for (unsigned line = threadIdx.x / kLineLanes; line < kTornLines; line += kThreads / kLineLanes) {
    const Quad* at = &from->ll128[line].quad[quad];
    Quad seen{};
    bool late = false;
    for (unsigned polls = 1;; ++polls) {
      seen = CudaOps::read_quad(at);
      if (line_all(quad != kFlagQuad || seen.hi == ll128_flag(pass))) break;
      if (polls % kPollsPerLook == 0) late = CudaOps::now_ns() > end_ns;
      if (!line_all(!late)) return false;
    }
    seen = CudaOps::read_quad(at);
    const std::uint64_t high = quad == kFlagQuad ? ll128_flag(pass) : pattern(pass, line, 2 * quad + 1);
    const bool whole = line_all(seen.lo == pattern(pass, line, 2 * quad) && seen.hi == high);
    if (quad == kFlagQuad && !whole) ++*torn;
  }
  return true;
}

__device__ bool check_ll(const TornRegion* from, std::uint64_t pass, std::uint64_t end_ns, unsigned* torn) {
  const std::uint32_t flag = ll_flag(pass);
  for (unsigned line = threadIdx.x; line < kTornLines; line += kThreads) {
    LlWords seen{};
    const bool came = poll_until(end_ns, [&] {
      seen = CudaOps::read_ll(&from->ll[line]);
      return ll_word_ready(seen.word[0], flag) && ll_word_ready(seen.word[1], flag);
    });
    if (!came) return false;
    if (ll_payload(seen) != pattern(pass, line, 0)) ++*torn;
  }
  return true;
}

/// Checks what comes into `from` and says so in `back`, the source's memory.
__device__ void check_lines(const TornRegion* from, TornRegion* back, TornResult* result, std::uint64_t end_ns) {
  __shared__ unsigned torn_ll128;
  __shared__ unsigned torn_ll;
  if (threadIdx.x == 0) torn_ll128 = torn_ll = 0;
  __syncthreads();
  std::uint64_t pass = 0;
  for (; pass < kTornPasses; ++pass) {
    unsigned wide = 0;
    unsigned narrow = 0;
    const bool came = check_ll128(from, pass, end_ns, &wide) && check_ll(from, pass, end_ns, &narrow);
    if (wide != 0) atomicAdd(&torn_ll128, wide);
    if (narrow != 0) atomicAdd(&torn_ll, narrow);
    if (__syncthreads_and(came) == 0) break;
    // All lanes have used what they read: the source may store the next pass.
    if (threadIdx.x == 0) CudaOps::store_after_reads(&back->passes_checked, pass + 1, Edge::kCredit);
  }
  __syncthreads();
  if (threadIdx.x == 0) *result = {pass, torn_ll128, torn_ll, pass < kTornPasses ? 1u : 0u};
}

__global__ void __launch_bounds__(kThreads) torn_line(const __grid_constant__ TornTest test) {
  const std::uint64_t end_ns = CudaOps::now_ns() + test.budget_ns;
  const unsigned index = blockIdx.x / 2;
  const unsigned peer = index < test.rank ? index : index + 1;
  TornRegion* own = &test.areas[test.rank]->from[peer];     // what the peer writes
  TornRegion* remote = &test.areas[peer]->from[test.rank];  // what this rank writes
  if (blockIdx.x % 2 == 0) {
    store_lines(remote, own, end_ns);
  } else {
    check_lines(own, remote, &test.areas[test.rank]->results[peer], end_ns);
  }
}

}  // namespace

int load_torn_line_kernel() noexcept { return load_kernel(torn_line, kThreads, nullptr); }

int launch_torn_line_kernel(const TornTest& test, CUstream_st* stream) noexcept {
  return launch_cooperative(torn_line, 2 * (test.world - 1), kThreads, stream, test);
}

}  // namespace ringbell::device
