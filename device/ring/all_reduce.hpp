// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ring AllReduce over any wire format: reduce-scatter, then all-gather, world - 1 steps each, round after round.
#ifndef RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_
#define RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_

#include "device/protocol/ll128.hpp"
#include "device/protocol/ll_short.hpp"
#include "device/protocol/simple.hpp"
#include "device/worker/header_check.hpp"

namespace ringbell::device {

/// One step over the operation's wire format.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_INLINE Status do_step(const WorkerContext& ctx, G& g, const Step& step, Progress& progress) {
  switch (g.shared().op.command.protocol) {
    case Protocol::kLL: return LlProtocol<M, G>(ctx, g, step, progress).move();
    case Protocol::kLL128: return Ll128Protocol<M, G>(ctx, g, step, progress).move();
    case Protocol::kSimple: return SimpleProtocol<M, G>(ctx, g, step, progress).move();
    case Protocol::kAuto: break;  // the planner never leaves it open
  }
  return Status::kInvalidArgument;
}

/// Runs the operation in g.shared().op, whose first round is laid out. Called by the operation's lanes. If they are a
/// team alone, it sends headers before it waits for data of this operation, and looks at the peers' when it has
/// sent everything. `in` may equal `out`: a chunk of `out` is written only after this rank's input of that chunk went
/// into the ring. world >= 2, bytes > 0.
/// @param status of this lane so far: one that is not kOk ends the first step that has a barrier, for all lanes
template <class M, Group G>
RINGBELL_TARGET Status ring_all_reduce(const WorkerContext& ctx, G& g, Status status) {
  GroupShared& shared = g.shared();
  const Operation& op = shared.op;
  Progress progress;
  progress.carried = status;
  progress.room = free_slots(ctx, shared) - shared.rounds[0].first;
  for (unsigned parity = 0;; parity ^= 1) {
    const Round& round = shared.rounds[parity];
    for (std::uint32_t at = round.first; at < round.steps; ++at) {
      const Step& step = round.step[at];
      // Only the last round has empty chunks: this step and the one before end with a barrier. The one before was the
      // last that a lane could be late for with the round before this, whose place the next round takes; this one's
      // hands the next round over.
      if (at == 2 && !round.last && g.in_layout_team()) {
        lay_out_round(ctx, op, shared.links, round.end, round.epochs, &shared.rounds[parity ^ 1], g.team_lane(),
                      g.team_lanes());
      }
      if constexpr (G::kMayBeOneTeam) {
        if (step.first_in && g.alone()) send_headers<M>(ctx, g);
      }
      if (g.lane() == 0) ++shared.op.step;  // told when a wait is slow or fails
      status = do_step<M>(ctx, g, step, progress);
      if (status != Status::kOk) return status;
      if constexpr (G::kMayBeOneTeam) {
        if (step.last_out && g.alone()) {
          status = check_headers<M>(ctx, g);
          if (status != Status::kOk) return status;
        }
      }
    }
    if (!round.last) continue;
    // Nobody else reads them before the next operation's first barrier.
    if (g.lane() == 0) {
      const unsigned wire = wire_index(op.command.protocol);
      shared.persistent.epochs[wire] = round.epochs;
      shared.credit_seen[wire] = round.epochs.send - ctx.layout.slots + progress.room;
    }
    return Status::kOk;  // the last step had a barrier: nothing is carried any more
  }
}

/// world == 1: a copy.
template <class M, Group G>
RINGBELL_TARGET void copy_through(G& g) {
  const Operation& op = g.shared().op;
  const auto* in = static_cast<const std::byte*>(op.command.in);
  auto* out = static_cast<std::byte*>(op.command.out);
  if (in == out) return;
  for (std::uint64_t at = g.lane() * kQuadBytes; at < op.bytes; at += g.lanes() * kQuadBytes) {
    const unsigned valid = valid_bytes(op.bytes, at, kQuadBytes);
    store_pack16<M>(out + at, load_pack16<M>(in + at, valid), valid);
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_
