// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf --l2: what of the buffers is in the cache when a timed call begins. Pure arithmetic of buffer sets, and the size
// of the CPU's last cache.
//   warm   one set of buffers, used again by every call
//   flush  one set; scratch memory of twice the cache is overwritten before every call, the library's own state goes
//   too cold   a set for every call of a batch, all filled and thrown out at once; a few calls with another set then
//   bring
//          the library's own state back
#ifndef RINGBELL_TOOLS_PERF_CACHE_HPP_
#define RINGBELL_TOOLS_PERF_CACHE_HPP_

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>

#include "tools/options.hpp"
#include "tools/perf_rows.hpp"

namespace ringbell::tools {

inline bool any_chain(const PerfOptions& options) {
  return std::any_of(options.ways.begin(), options.ways.end(), [](IssueWay way) { return way.chain; });
}
inline bool any_needs_stream(const PerfOptions& options) {
  return std::any_of(options.ways.begin(), options.ways.end(), [](IssueWay way) { return needs_stream(way); });
}

/// The buffer sets of one row.
struct SetPlan {
  std::uint64_t stride;  ///< bytes from one set to the next
  int calls;             ///< sets for timed calls: the batch; one more is for the calls between
};

inline SetPlan set_plan(L2State l2, std::uint64_t row_bytes, int calls) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 20;  // of a region, if two sets fit
  const std::uint64_t stride = (row_bytes + kPage - 1) / kPage * kPage;
  if (l2 != L2State::kCold) return {stride, 1};
  // With the spare one; two at least, for a set that the call before used would be warm.
  const std::uint64_t wanted = std::max<std::uint64_t>(3, static_cast<std::uint64_t>(calls) + 1);
  const std::uint64_t batch = std::clamp<std::uint64_t>(kMostBytes / stride, 3, wanted) - 1;
  return {stride, static_cast<int>(batch)};
}

/// Of one region, large enough for every row.
inline std::uint64_t region_bytes(const PerfOptions& options) {
  std::uint64_t most = 2 * sizeof(std::uint64_t);
  for (const std::uint64_t size : options.sizes) {
    const SetPlan plan = set_plan(options.l2, size, options.warmup + options.iterations);
    const bool cold = options.l2 == L2State::kCold;
    // A chain's producer reads behind the inputs, its consumer writes behind the outputs.
    if (any_chain(options)) most = std::max(most, 2 * plan.stride);
    most = std::max(most, cold ? plan.stride * (static_cast<std::uint64_t>(plan.calls) + 1) : size);
  }
  return most;
}

/// "32768K", "8M", as sysfs writes it; 0 for anything else.
inline std::uint64_t parse_cache_size(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{}) return 0;
  if (rest == end) return value;
  return *rest == 'K' ? value << 10 : *rest == 'M' ? value << 20 : *rest == 'G' ? value << 30 : 0;
}

/// Twice the last-level cache of the CPU; 64 MiB where the system does not tell.
inline std::uint64_t cpu_flush_bytes() {
  std::uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string text;
    if (file >> text) largest = std::max(largest, parse_cache_size(text));
  }
  return largest != 0 ? 2 * largest : std::uint64_t{64} << 20;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_CACHE_HPP_
