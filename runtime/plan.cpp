// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.hpp"

#include <algorithm>
#include <span>

namespace ringbell {
namespace {

constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

// CPU: one hop is one wake-up of a peer, which wins while copies are cheap. LL carries the flag in the word, which wins
// until its doubled bytes cost more than Simple's two extra words.
constexpr TuningRow kCpuRows[] = {{4 << 10, Algorithm::kOneShot, Protocol::kLL},
                                  {16 << 10, Algorithm::kRing, Protocol::kLL},
                                  {kAnySize, Algorithm::kRing, Protocol::kSimple}};
// Two GPUs, one CTA each, over NVLink (bench/results/h200-2gpu): one-shot LL while each lane has one line; LL128 is
// behind another format at every size.
constexpr TuningRow kTwoGpuRows[] = {{3840, Algorithm::kOneShot, Protocol::kLL},
                                     {8 << 10, Algorithm::kRing, Protocol::kLL},
                                     {32 << 10, Algorithm::kOneShot, Protocol::kSimple},
                                     {kAnySize, Algorithm::kRing, Protocol::kSimple}};
// More GPUs: one hop instead of 2 (N - 1) while it is short. Not measured beyond that.
constexpr TuningRow kGpuRows[] = {{3840, Algorithm::kOneShot, Protocol::kLL},
                                  {32 << 10, Algorithm::kRing, Protocol::kLL},
                                  {kAnySize, Algorithm::kRing, Protocol::kSimple}};

std::span<const TuningRow> rows_of(const PlanBasis& basis) {
  if (basis.device == DeviceKind::kCpu) return kCpuRows;
  return basis.world == 2 ? std::span<const TuningRow>(kTwoGpuRows) : kGpuRows;
}

// What is asked for narrows the choice to the rows that agree with it; where none does, the ring, or Simple.
Path pick(const PlanBasis& basis, std::uint64_t bytes, Algorithm algorithm, Protocol protocol) {
  Path path;
  path.algorithm = algorithm == Algorithm::kAuto ? Algorithm::kRing : algorithm;
  path.protocol = protocol == Protocol::kAuto ? Protocol::kSimple : protocol;
  for (const TuningRow& row : rows_of(basis)) {
    const bool agrees = (algorithm == Algorithm::kAuto || algorithm == row.algorithm) &&
                        (protocol == Protocol::kAuto || protocol == row.protocol);
    if (bytes > row.up_to_bytes || !agrees || (row.protocol == Protocol::kLL128 && !basis.ll128_permitted)) continue;
    path.algorithm = row.algorithm;
    path.protocol = row.protocol;
    break;
  }
  return path;
}

std::uint64_t share_of(std::uint64_t bytes, std::uint64_t parts) {
  return (bytes / parts + 15 + (bytes % parts != 0)) / 16 * 16;
}

}  // namespace

Path plan_call(const PlanBasis& basis, std::uint64_t bytes, Algorithm wanted_algorithm,
               Protocol wanted_protocol) noexcept {
  Path path = pick(basis, bytes, wanted_algorithm, wanted_protocol);
  path.channels = 1;
  if (path.protocol == Protocol::kLL128 && !basis.ll128_permitted) path.protocol = Protocol::kAuto;
  const bool ring = path.algorithm == Algorithm::kRing;
  const std::uint64_t slot = ring ? basis.layout.slot_bytes : basis.layout.direct_slot_bytes;
  const std::uint64_t parts = ring ? basis.world : std::max<std::uint64_t>(1, (bytes + slot - 1) / slot);
  path.chunk_bytes =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share_of(bytes, parts), device::kQuadBytes, slot));
  return path;
}

}  // namespace ringbell
