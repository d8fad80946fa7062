// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "device/cuda/torn_line.hpp"
#include "host/clock.hpp"
#include "host/cuda_call.hpp"
#include "host/cuda_torn_line.hpp"

namespace ringbell::host {
namespace {

using device::TornArea;
using device::TornResult;

constexpr double kMeetSeconds = 10;  // peers that are written come within milliseconds, unless their set-up fails
constexpr std::uint64_t kBudgetNs = 100'000'000;  // alone on its GPU a pair needs 5 ms
// Ranks that share a GPU without MPS take turns of milliseconds, and one GPU does not tear its own lines: one pass
// there.
constexpr std::uint64_t kEnoughPasses = 100;

std::uint64_t area_offset(std::uint64_t layout_bytes) {
  return (layout_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

bool same_gpu(const RankCard& a, const RankCard& b) {
  return std::memcmp(a.gpu_uuid, b.gpu_uuid, sizeof a.gpu_uuid) == 0;
}

/// Tells every peer that its window is open here, and waits for the same from all. @return the first that did not come,
/// or -1
int meet(const Segment& segment, cudaStream_t stream, TornArea* const* areas) {
  const int own = segment.rank();
  const std::uint64_t here = 1;
  for (int peer = 0; peer < segment.world(); ++peer) {
    if (peer == own) continue;
    cuda_check(cudaMemcpyAsync(&areas[peer]->from[own].hello, &here, sizeof here, cudaMemcpyDefault, stream),
               "a copy into a peer's window");
  }
  cuda_check(cudaStreamSynchronize(stream), "a copy into a peer's window");
  const Deadline deadline = Deadline::after_seconds(kMeetSeconds);
  for (int peer = 0; peer < segment.world(); ++peer) {
    std::uint64_t there = peer == own ? 1 : 0;
    while (there == 0) {
      cuda_check(cudaMemcpyAsync(&there, &areas[own]->from[peer].hello, sizeof there, cudaMemcpyDefault, stream),
                 "a copy from the window");
      cuda_check(cudaStreamSynchronize(stream), "a copy from the window");
      if (there != 0) break;
      if (segment.phase(peer) == Phase::kFailed || deadline.expired()) return peer;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return -1;
}

}  // namespace

std::uint64_t torn_line_bytes(std::uint64_t layout_bytes) noexcept {
  return area_offset(layout_bytes) - layout_bytes + sizeof(TornArea);
}

LinkVerdict test_links(const Segment& segment, CUstream_st* stream, std::byte* const* window,
                       std::uint64_t layout_bytes) {
  const int own = segment.rank();
  device::TornTest test{};
  test.rank = static_cast<std::uint32_t>(own);
  test.world = static_cast<std::uint32_t>(segment.world());
  test.budget_ns = kBudgetNs;
  for (int rank = 0; rank < segment.world(); ++rank) {
    test.areas[rank] = reinterpret_cast<TornArea*>(window[rank] + area_offset(layout_bytes));
  }

  const int absent = meet(segment, stream, test.areas);
  if (absent >= 0) return {false, fmt::format("rank {} did not come to the torn-line test", absent)};
  cuda_check(static_cast<cudaError_t>(device::launch_torn_line_kernel(test, stream)), "launching the torn-line test");
  TornResult results[device::kMaxRanks];
  cuda_check(cudaMemcpyAsync(results, test.areas[own]->results, sizeof results, cudaMemcpyDefault, stream),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "the torn-line test");

  LinkVerdict verdict;
  for (int peer = 0; peer < segment.world(); ++peer) {
    if (peer == own) continue;
    const TornResult& result = results[peer];
    const RankCard& theirs = segment.card(peer);
    if (result.torn_ll != 0) {
      throw_error(Status::kSystem,
                  fmt::format("{} of {} 8-byte words that rank {} (GPU {}) stored came changed to rank {} (GPU {})",
                              result.torn_ll, (result.passes + 1) * device::kTornLines, peer, theirs.pci_id, own,
                              segment.card(own).pci_id),
                  "peer access is broken here: switch the IOMMU and PCIe ACS off, or use one GPU");
    }
    const std::uint64_t enough = same_gpu(segment.card(own), theirs) ? 1 : kEnoughPasses;
    if (result.torn_ll128 != 0) {
      verdict = {false, fmt::format("{} of {} lines of 128 bytes came torn from rank {} (GPU {})", result.torn_ll128,
                                    (result.passes + 1) * device::kTornLines, peer, theirs.pci_id)};
    } else if (result.passes < enough && verdict.lines_whole) {
      verdict = {false, fmt::format("only {} lines of 128 bytes came from rank {} (GPU {}) within {} ms",
                                    result.passes * device::kTornLines, peer, theirs.pci_id, kBudgetNs / 1'000'000)};
    }
  }
  return verdict;
}

}  // namespace ringbell::host
