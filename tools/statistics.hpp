// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a table says of a row's times. Pure.
#ifndef RINGBELL_TOOLS_STATISTICS_HPP_
#define RINGBELL_TOOLS_STATISTICS_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ringbell::tools {

struct Summary {
  double p10 = 0;
  double p50 = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
  double cv = 0;  ///< standard deviation / mean; 0 for one sample
};

/// The value below which a share `q` of the samples lies, linear between neighbours (the median of two is their mean).
/// @param sorted ascending, not empty
inline double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double share = position - static_cast<double>(below);
  return sorted[below] + (sorted[below + 1] - sorted[below]) * share;
}

/// All zero for no samples.
inline Summary summarize(std::vector<double> samples) {
  Summary summary;
  if (samples.empty()) return summary;
  std::sort(samples.begin(), samples.end());
  summary.p10 = quantile(samples, 0.10);
  summary.p50 = quantile(samples, 0.50);
  summary.p99 = quantile(samples, 0.99);
  summary.p999 = quantile(samples, 0.999);
  summary.max = samples.back();
  const auto count = static_cast<double>(samples.size());
  double mean = 0;
  for (const double sample : samples) mean += sample / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  if (samples.size() > 1 && mean > 0) summary.cv = std::sqrt(squares / (count - 1)) / mean;
  return summary;
}

/// How many times ours is theirs: the median over rounds and the spread between them.
struct Ratio {
  double median = 0;
  double lowest = 0;
  double highest = 0;
};

/// Round by round, as far as both have rounds; 0 for none. A round without time counts as none.
inline Ratio ratio_over_rounds(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size() && i < theirs.size(); ++i) {
    if (theirs[i] > 0) ratios.push_back(ours[i] / theirs[i]);
  }
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  return {quantile(ratios, 0.5), ratios.front(), ratios.back()};
}

/// 10^9 bytes a second, as nccl-tests counts: the message once per call.
inline double algorithm_bandwidth_gbps(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds / 1e3 : 0;
}

/// What a link carries in a ring: comparable between numbers of ranks.
inline double bus_bandwidth_gbps(double algorithm_bandwidth, int ranks) {
  return algorithm_bandwidth * 2.0 * (ranks - 1) / ranks;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_STATISTICS_HPP_
