// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ring AllReduce over any wire format: reduce-scatter, then all-gather, world - 1 steps each, round after round.
#ifndef RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_
#define RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_

#include "device/protocol/ll.hpp"
#include "device/protocol/ll128.hpp"
#include "device/protocol/simple.hpp"

namespace ringbell::device {

/// Runs the operation in g.shared().op, whose first steps begin_operation has laid out. `in` may equal `out`: a chunk
/// of `out` is written only after this rank's input of that chunk went into the ring. world >= 2.
/// @param status of this lane so far: one that is not kOk ends the first step that has a barrier, for all lanes
template <class M, Group G>
RINGBELL_TARGET Status ring_all_reduce(const WorkerContext& ctx, G& g, Status status) {
  GroupShared& shared = g.shared();
  // A lane that has no line of a short chunk lays out the next steps, and none of the team that waits for headers.
  const bool lays_out = g.lane() == g.lanes() / 2;
  const unsigned wire = wire_index(shared.op.command.protocol);
  Progress progress;
  progress.carried = status;
  progress.room =
      ctx.layout.slots - static_cast<std::uint32_t>(shared.persistent.epochs[wire].send - shared.credit_seen[wire]);
  for (std::uint32_t number = 0;; ++number) {
    const Step& step = shared.steps[number % kSteps];
    if (step.verb == Verb::kNone) break;
    if (g.lane() == 0) shared.op.step = number + 1;  // told when a wait is slow or fails
    // This step's barrier hands them over.
    if (lays_out && has(step.verb, Verb::kRecv)) {
      lay_out_steps(ctx, shared.op, shared.links, &shared.cursor, shared.steps);
    }
    status = Status::kInvalidArgument;
    switch (shared.op.command.protocol) {
      case Protocol::kLL: status = LlProtocol<M, G>(ctx, g, step, progress).move(); break;
      case Protocol::kLL128: status = Ll128Protocol<M, G>(ctx, g, step, progress).move(); break;
      case Protocol::kSimple: status = SimpleProtocol<M, G>(ctx, g, step, progress).move(); break;
      case Protocol::kAuto: break;  // the planner never leaves it open
    }
    if (status != Status::kOk) return status;
  }
  // Nobody else reads them before the next operation's first barrier.
  if (g.lane() == 0) {
    shared.persistent.epochs[wire] = shared.cursor.epochs;
    shared.credit_seen[wire] = shared.cursor.epochs.send - ctx.layout.slots + progress.room;
  }
  return progress.carried;  // an operation without steps has no barrier of its own
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
