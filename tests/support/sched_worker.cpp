// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The unmutated worker over the explorer's memory, once for each of its groups.
#include "device/worker/loop.hpp"
#include "tests/support/sched_world.hpp"

namespace ringbell::test {

void sched_worker(const device::WorkerContext& ctx, SchedGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<>>(ctx, group, generation);
}

void warp_worker(const device::WorkerContext& ctx, WarpGroup& group, std::uint64_t generation) {
  device::run_worker<SchedOps<>>(ctx, group, generation);
}

}  // namespace ringbell::test
