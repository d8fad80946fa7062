// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_samples.hpp"

namespace ringbell::tools {
namespace {

constexpr int kWithCalls = 0;  // graphs
constexpr int kWithout = 1;

}  // namespace

SampleTimer::SampleTimer(Peer& peer, WorkStream& work, IssueWay way, const PeerCall& call, const SampleBuffers& around)
    : peer_(peer), work_(work), way_(way), call_(call), around_(around) {
  if (way_.issue != Issue::kGraph) return;
  // What the library loads or makes the first time must not be captured.
  require_ok(peer_.enqueue(call_));
  work_.synchronize();
  work_.capture(kWithCalls, [this] { put_all(); });
  if (way_.chain) return;
  work_.capture(kWithout, [this] {
    for (int i = 0; i < kSampleCalls; ++i) work_.tick();
  });
}

void SampleTimer::require_ok(Status status) {
  if (status != Status::kOk) throw peer_.failure(status);
}

void SampleTimer::put_one() {
  if (!way_.chain) {
    if (way_.issue == Issue::kGraph) work_.tick();
    return require_ok(peer_.enqueue(call_));
  }
  work_.copy(const_cast<void*>(call_.in), around_.source, around_.bytes);
  switch (way_.issue) {
    case Issue::kHost:
      work_.synchronize();
      require_ok(peer_.call(call_));
      break;
    case Issue::kAfter: require_ok(peer_.call_after(call_)); break;
    case Issue::kStream:
    case Issue::kGraph: require_ok(peer_.enqueue(call_)); break;
  }
  work_.copy(around_.sink, call_.out, around_.bytes);
}

void SampleTimer::put_all() {
  for (int i = 0; i < kSampleCalls; ++i) put_one();
}

double SampleTimer::sample_us() {
  double us = 0;
  if (way_.issue == Issue::kGraph) {
    us = work_.time_us([this] { work_.replay(kWithCalls); });
    if (!way_.chain) us -= work_.time_us([this] { work_.replay(kWithout); });
  } else {
    us = work_.time_us([this] { put_all(); });
  }
  require_ok(peer_.enqueued());
  return us / kSampleCalls;
}

}  // namespace ringbell::tools
