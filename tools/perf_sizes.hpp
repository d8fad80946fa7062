// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which message sizes a sweep visits. Pure.
#ifndef RINGBELL_TOOLS_PERF_SIZES_HPP_
#define RINGBELL_TOOLS_PERF_SIZES_HPP_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {

/// From `begin` to `end`, times `factor` or plus `step` (the other one 0); the end is always there.
/// @throws UsageError: an empty range, or one that does not grow
inline std::vector<std::uint64_t> sweep_sizes(std::uint64_t begin, std::uint64_t end, std::uint64_t factor,
                                              std::uint64_t step) {
  constexpr std::size_t kMostRows = 100000;
  if (begin == 0) throw UsageError("-b 0: a sweep begins at 1 byte or more");
  if (end < begin) {
    throw UsageError("-e " + std::to_string(end) + " is below -b " + std::to_string(begin) +
                     ": the end size must not be smaller than the first");
  }
  if (factor < 2 && step == 0) throw UsageError("-f " + std::to_string(factor) + ": the factor is 2 or more");
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = begin;;) {
    sizes.push_back(size);
    if (size == end) return sizes;
    if (sizes.size() > kMostRows) {
      throw UsageError("-i " + std::to_string(step) + ": more than " + std::to_string(kMostRows) +
                       " sizes; take a larger step or -f");
    }
    const bool past_end = step != 0 ? step > end - size : size > end / factor;
    size = past_end ? end : step != 0 ? size + step : size * factor;
  }
}

/// The type whose elements do not fit the largest size, which leaves it without a row.
/// @throws UsageError naming it
inline void refuse_end_below_element(const std::vector<std::uint64_t>& sizes, const std::vector<DType>& dtypes) {
  const std::uint64_t end = *std::max_element(sizes.begin(), sizes.end());
  for (const DType dtype : dtypes) {
    if (end < dtype_bytes(dtype)) {
      throw UsageError("end size " + std::to_string(end) + " is below one element of " + dtype_name(dtype) + " (" +
                       std::to_string(dtype_bytes(dtype)) + " bytes): give a larger -e or --sizes, or another -d");
    }
  }
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_SIZES_HPP_
