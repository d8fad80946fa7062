// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.hpp"

#include <algorithm>
#include <array>

namespace ringbell {
namespace {

constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

// CPU: LL carries the flag in the word, which wins until its doubled bytes cost more than Simple's two extra words.
constexpr std::array<TuningRow, 2> kCpuRows{{{16 << 10, Protocol::kLL}, {kAnySize, Protocol::kSimple}}};
// One CTA over NVLink: LL and Simple cross at 32 KB, LL128 is behind one of them at every size
// (bench/results/h200-2gpu).
constexpr std::array<TuningRow, 2> kCudaRows{{{32 << 10, Protocol::kLL}, {kAnySize, Protocol::kSimple}}};

template <std::size_t kRows>
Protocol pick(const std::array<TuningRow, kRows>& rows, std::uint64_t bytes, bool ll128_permitted) {
  for (const TuningRow& row : rows) {
    if (bytes <= row.up_to_bytes && (row.protocol != Protocol::kLL128 || ll128_permitted)) return row.protocol;
  }
  return Protocol::kSimple;
}

}  // namespace

Path plan_call(const PlanBasis& basis, std::uint64_t bytes, Algorithm, Protocol wanted_protocol) noexcept {
  Path path;
  path.algorithm = Algorithm::kRing;
  path.channels = 1;
  path.protocol = wanted_protocol;
  if (wanted_protocol == Protocol::kAuto) {
    path.protocol = basis.device == DeviceKind::kCuda ? pick(kCudaRows, bytes, basis.ll128_permitted)
                                                      : pick(kCpuRows, bytes, basis.ll128_permitted);
  } else if (wanted_protocol == Protocol::kLL128 && !basis.ll128_permitted) {
    path.protocol = Protocol::kAuto;
  }
  const std::uint64_t share = (bytes / basis.world + 15 + (bytes % basis.world != 0)) / 16 * 16;
  path.chunk_bytes =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, device::kQuadBytes, basis.layout.slot_bytes));
  return path;
}

}  // namespace ringbell
