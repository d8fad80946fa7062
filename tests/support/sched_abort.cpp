// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// SchedWorld's text of what breaks a queue and of what keeps its worker away, as runtime/call_queue.cpp and
// call_queue_park.cpp have it. Submit, wait and the worker's lanes are sched_world.cpp's.
#include "tests/support/sched_world.hpp"

namespace ringbell::test {

using device::Edge;
using device::LaunchRight;
using device::Residency;
using Host = SchedOps<>;

void SchedWorld::abort(unsigned r, std::uint64_t code) {
  Host::store_release(&ranks_[r].ctx.control->control.abort_code, code, Edge::kAbort);
  Host::fence_seq_cst(Edge::kPark);
  while (look_after_launch(r) == LaunchRight::kUnresolved) Host::pause(1);
}

void SchedWorld::relay_abort(unsigned r) {
  Rank& rank = ranks_[r];
  if (Host::load_acquire(&rank.ctx.control->control.abort_code, Edge::kAbort) == 0) return;
  if (device::claim_launch<Host>(&rank.ctx.control->state, rank.launched) == LaunchRight::kMine) launch(r);
}

void SchedWorld::park_and_stay(unsigned r) {
  Rank& rank = ranks_[r];
  if (!Host::compare_exchange(rank.stays, 0, 1)) scheduler_.fail("scopes are not counted here");
  Host::store_relaxed(&rank.ctx.control->control.request, device::kRequestPark);
  Host::fence_seq_cst(Edge::kStart);  // partner: look_after_launch
  for (;;) {
    const std::uint64_t state = Host::load_acquire(&rank.ctx.control->state.state, Edge::kState);
    const bool parked = device::state_residency(state) == Residency::kParked &&
                        device::state_generation(state) == Host::load_acquire(rank.launched, Edge::kStart);
    const bool gone = parked || device::state_residency(state) == Residency::kBroken;
    if (gone && rank.lanes_running == 0) break;
    Host::pause(1);
  }
  rank.away = true;
}

void SchedWorld::unpark(unsigned r) {
  Rank& rank = ranks_[r];
  rank.away = false;
  if (!Host::compare_exchange(rank.stays, 1, 0)) scheduler_.fail("no scope to leave");
  Host::store_relaxed(&rank.ctx.control->control.request, 0);
  Host::fence_seq_cst(Edge::kPark);
  const bool aborted = Host::load_acquire(&rank.ctx.control->control.abort_code, Edge::kAbort) != 0;
  if (!aborted && !front_is_ready(r)) return;
  while (look_after_launch(r) == LaunchRight::kUnresolved) Host::pause(1);
}

}  // namespace ringbell::test
