// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's rows: which there are, and what was measured of one. Every process of a run computes the same plan. Pure.
#ifndef RINGBELL_TOOLS_PERF_ROWS_HPP_
#define RINGBELL_TOOLS_PERF_ROWS_HPP_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/options.hpp"
#include "tools/peer.hpp"
#include "tools/statistics.hpp"

namespace ringbell::tools {

/// One row to measure.
struct RowPlan {
  DType dtype;
  ReduceOp op;
  std::uint64_t count;
  IssueWay way = {};
  [[nodiscard]] std::uint64_t bytes() const { return count * dtype_bytes(dtype); }
};

/// Sizes below one element have no row.
inline std::vector<RowPlan> plan_rows(const PerfOptions& options) {
  std::vector<RowPlan> plans;
  for (const DType dtype : options.dtypes) {
    for (const ReduceOp op : options.ops) {
      for (const std::uint64_t size : options.sizes) {
        const std::uint64_t count = size / dtype_bytes(dtype);
        if (count == 0) continue;
        for (const IssueWay way : options.ways) plans.push_back({dtype, op, count, way});
      }
    }
  }
  return plans;
}

/// One placement of one row, over the rounds so far. The same on every rank of a group.
struct Measured {
  std::vector<double> samples_us;         ///< the slowest rank's times, of all rounds
  std::vector<double> round_p50_us;       ///< one for each round
  Summary us;                             ///< of samples_us
  PeerPath path;                          ///< that the calls went
  std::optional<std::uint64_t> wrong;     ///< elements, all ranks and calls; nullopt: not checked
  std::optional<std::uint64_t> hash;      ///< of the output, the same on all ranks
  std::optional<std::uint64_t> launches;  ///< of the conductor's worker during these calls, warm-up included
  std::uint64_t sent_bytes = 0;           ///< payload published for one call by all ranks together
  bool sent_as_expected = true;           ///< exactly, over all calls

  /// Puts one more round behind the others.
  void add(const Measured& round) {
    samples_us.insert(samples_us.end(), round.samples_us.begin(), round.samples_us.end());
    round_p50_us.insert(round_p50_us.end(), round.round_p50_us.begin(), round.round_p50_us.end());
    us = summarize(samples_us);
    path = round.path;
    if (round.wrong) wrong = wrong.value_or(0) + *round.wrong;
    if (round.hash) hash = round.hash;
    if (round.launches) launches = launches.value_or(0) + *round.launches;
    sent_bytes = round.sent_bytes;
    sent_as_expected = sent_as_expected && round.sent_as_expected;
  }
};

/// One size, type and operation; the floor row has neither.
struct Row {
  std::string peer = "ringbell";
  bool is_nop = false;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  IssueWay way;
  std::optional<Measured> out_of_place;
  std::optional<Measured> in_place;
  std::string refusal;  ///< why the peer has no such row; nothing is measured then
  /// Ours to this peer's p50; only in peers' rows.
  std::optional<Ratio> ratio;
  std::optional<Ratio> ratio_in_place;

  [[nodiscard]] bool is_ours() const { return peer == "ringbell"; }
  /// What `ranks` publish for one call that goes this path.
  [[nodiscard]] std::uint64_t expected_bytes(int ranks, const PeerPath& path) const {
    const int times = path.algorithm == algorithm_name(Algorithm::kOneShot) ? ranks : 2;
    return static_cast<std::uint64_t>(times * (ranks - 1)) * bytes;
  }
  void add(const Row& round) {
    if (round.out_of_place)
      out_of_place ? out_of_place->add(*round.out_of_place) : void(out_of_place = round.out_of_place);
    if (round.in_place) in_place ? in_place->add(*round.in_place) : void(in_place = round.in_place);
    refusal = round.refusal;
  }
};

/// Else there is no bandwidth: of an empty call, of what a call adds to a graph, of a chain.
inline bool is_time_of_a_call(const Row& row) {
  return !row.is_nop && !row.way.chain && row.way.issue != Issue::kGraph;
}

/// What was measured, in a header's words.
struct Subject {
  std::string describe;
  int ranks;
  DeviceKind device;
};

/// One of --against, as the conductor knows it.
struct PeerInfo {
  std::string name;
  std::string about;                          ///< version, in its own words
  std::map<std::string, std::string> forced;  ///< variables that only its processes have
  std::optional<bool> nvls;                   ///< could NCCL use NVLink SHARP
  bool lost = false;                          ///< it failed: no rows from then on
  bool told = false;                          ///< some rows of it were told
};

inline Row row_of(const RowPlan& plan) {
  Row row;
  row.count = plan.count;
  row.bytes = plan.bytes();
  row.dtype = plan.dtype;
  row.op = plan.op;
  row.way = plan.way;
  return row;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_ROWS_HPP_
