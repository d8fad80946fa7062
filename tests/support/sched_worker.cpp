// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The unmutated worker and launched call over the explorer's memory, once for each of its groups.
#include "device/worker/launched.hpp"
#include "tests/support/sched_streams.hpp"

namespace ringbell::test {

void sched_worker(const device::WorkerContext& ctx, SchedGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<>>(ctx, group, generation);
}

void warp_worker(const device::WorkerContext& ctx, WarpGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<>>(ctx, group, generation);
}

void sched_launched(const device::WorkerContext& ctx, SchedGroup& group, const device::LaunchedCall& call) {
  device::run_launched<SchedOps<>>(ctx, group, call);
}

void warp_launched(const device::WorkerContext& ctx, WarpGroup& group, const device::LaunchedCall& call) {
  device::run_launched<SchedOps<>>(ctx, group, call);
}

}  // namespace ringbell::test
