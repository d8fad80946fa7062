// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Leaving and coming back without losing a command. The worker stores PARKING, fences, looks at the queue once more;
// the host stores a command, fences, looks at the state. One of them sees the other. The worker alone writes the state;
// the right to launch generation g + 1 goes to whoever moves `launched` from g after reading PARKED(g).
#ifndef RINGBELL_DEVICE_WORKER_PARK_HPP_
#define RINGBELL_DEVICE_WORKER_PARK_HPP_

#include "device/group/group.hpp"
#include "device/mem/ops.hpp"

namespace ringbell::device {

/// True if command `seq` is whole in its slot. The host has stored all four quads before its fence; of a call that
/// comes after a point in a stream the last one is stored when the stream is there.
template <class M>
RINGBELL_TARGET bool command_arriving(const WorkerContext& ctx, std::uint64_t seq) {
  const CommandSlot& slot = ctx.queue[seq & (ctx.queue_depth - 1)];
  constexpr unsigned kAsked = mutated<M>(Mutant::kParkAsksOneQuad) ? 1 : kCommandQuads;
  for (unsigned i = 0; i < kAsked; ++i) {
    if (!command_quad_ready(M::read_command_quad(&slot.quad[i], Edge::kPark), command_flag(seq))) return false;
  }
  return true;
}

/// Worker, one lane. Saves what must survive and says PARKED, unless a command came in time and `reason` yields to it.
/// @return true if the worker must leave now.
template <class M, Group G>
RINGBELL_TARGET bool try_park(const WorkerContext& ctx, G& g, ParkReason reason) {
  const Persistent& now = g.shared().persistent;
  StateLine& line = ctx.control->state;
  M::store_relaxed(&line.state, state_word(now.generation, Residency::kParking, reason));
  const bool yields = reason == ParkReason::kIdle || reason == ParkReason::kBurstEnd;
  if (yields && !mutated<M>(Mutant::kParkWithoutReread)) {
    M::fence_seq_cst(Edge::kPark);
    if (command_arriving<M>(ctx, now.next_seq)) {
      M::store_relaxed(&line.state, state_word(now.generation, Residency::kRunning, ParkReason::kNone));
      return false;
    }
  }
  copy_persistent(now, ctx.persistent);
  M::store_release(&line.state, state_word(now.generation, Residency::kParked, reason), Edge::kState);
  return true;
}

/// Worker, one lane, after a failure: never runs again.
template <class M, Group G>
RINGBELL_TARGET void leave_broken(const WorkerContext& ctx, G& g) {
  const Persistent& now = g.shared().persistent;
  copy_persistent(now, ctx.persistent);
  M::store_release(&ctx.control->state.state, state_word(now.generation, Residency::kBroken, ParkReason::kNone),
                   Edge::kState);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_PARK_HPP_
