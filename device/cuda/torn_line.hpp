// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The torn-line test: does a line that a peer stores arrive whole? No specification promises it for the 128 bytes of
// LL128. For every peer one CTA stores lines into its window and one checks the lines that come from it, pass after
// pass. Plain C++; who runs it and what follows from it is host/cuda_torn_line_cuda.cpp.
#ifndef RINGBELL_DEVICE_CUDA_TORN_LINE_HPP_
#define RINGBELL_DEVICE_CUDA_TORN_LINE_HPP_

#include <cstddef>
#include <cstdint>

#include "device/config.hpp"
#include "device/layout/ll128_line.hpp"
#include "device/layout/ll_line.hpp"

struct CUstream_st;  // *: cudaStream_t, without the toolkit's headers

namespace ringbell::device {

inline constexpr unsigned kTornLines = 1024;  // of each format in a pass
inline constexpr unsigned kTornPasses = 512;  // half a million lines of each format

/// memory: the receiver's window, behind the layout's bytes. writer: the one source rank. reader: the owner. zero:
/// nothing came, nobody is there.
struct TornRegion {
  Ll128Line ll128[kTornLines];
  LlLine ll[kTornLines];
  alignas(kCacheLineBytes) std::uint64_t passes_checked;  // by the source, of the lines that the owner stores
  alignas(kCacheLineBytes) std::uint64_t hello;           // 1: the source has opened this window; written by a copy
};
/// What one rank found about the lines of one source.
struct TornResult {
  std::uint64_t passes;      // whole ones
  std::uint64_t torn_ll128;  // lines whose data was not what their flag said
  std::uint64_t torn_ll;
  std::uint64_t timed_out;  // 1: the source was not done in time
};

/// One rank's part of the test.
struct TornArea {
  TornRegion from[kMaxRanks];
  TornResult results[kMaxRanks];  // writer: the owner's kernel, not its peers
};

struct TornTest {
  std::uint32_t rank;
  std::uint32_t world;
  TornArea* areas[kMaxRanks];  // every rank's, as mapped here; zeroed
  std::uint64_t budget_ns;     // the kernel ends after this, whatever the peers do
};

/// As load_resident_kernel.
int load_torn_line_kernel() noexcept;
/// Queues the test of all pairs of this rank: 2 (world - 1) CTAs, cooperative, so that they run together.
int launch_torn_line_kernel(const TornTest& test, CUstream_st* stream) noexcept;

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CUDA_TORN_LINE_HPP_
