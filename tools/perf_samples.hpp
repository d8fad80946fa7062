// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One sample of perf's ways that put many calls on a stream: back to back, in a graph, in a chain of kernels. What is
// checked and how often it is measured is perf_measure.hpp.
#ifndef RINGBELL_TOOLS_PERF_SAMPLES_HPP_
#define RINGBELL_TOOLS_PERF_SAMPLES_HPP_

#include "tools/issue.hpp"
#include "tools/peer.hpp"
#include "tools/work_stream.hpp"

namespace ringbell::tools {

/// What a chain's producer reads and its consumer writes.
struct SampleBuffers {
  void* source;
  void* sink;
  std::uint64_t bytes;
};

/// All ranks make the same samples in the same order. Throws what the peer makes of a failed call.
class SampleTimer {
 public:
  /// Captures graphs, if the way is one. All must outlive this.
  SampleTimer(Peer& peer, WorkStream& work, IssueWay way, const PeerCall& call, const SampleBuffers& around);
  /// @return microseconds of one of kSampleCalls calls; of a graph what a call adds, which noise may make negative
  double sample_us();

 private:
  void require_ok(Status status);
  void put_all();
  void put_one();

  Peer& peer_;
  WorkStream& work_;
  const IssueWay way_;
  const PeerCall call_;
  const SampleBuffers around_;
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_SAMPLES_HPP_
