// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One-shot AllReduce: every rank sends its whole input to every other and folds all inputs itself, in rank order: one
// hop, the same bits for any protocol and chunk size. N - 1 times the bytes, so it is for short messages, and for two
// ranks, where the ring sends as much.
#ifndef RINGBELL_DEVICE_DIRECT_ONE_SHOT_HPP_
#define RINGBELL_DEVICE_DIRECT_ONE_SHOT_HPP_

#include "device/direct/one_shot_ll.hpp"
#include "device/direct/one_shot_ll128.hpp"
#include "device/direct/one_shot_simple.hpp"
#include "device/worker/header_check.hpp"

namespace ringbell::device {

/// One chunk. Lanes may come from it with different statuses.
template <class Wire, class M, Group G>
RINGBELL_TARGET RINGBELL_INLINE Status do_exchange(const WorkerContext& ctx, G& g, Exchange exchange, Status status) {
  Wire wire(ctx, g, exchange);
  const GroupShared& shared = g.shared();
  if (status == Status::kOk && !(shared.sends_ahead && exchange.round == 0)) wire.send();
  if constexpr (G::kMayBeOneTeam) {
    // It sends headers before it waits for data of the operation, and looks at the peers' when it has sent everything.
    if (exchange.round == 0 && g.alone()) send_headers<M>(ctx, g);
    if (is_last(shared.op, exchange) && status == Status::kOk && g.alone()) status = check_headers<M>(ctx, g);
  }
  return wire.receive(status);
}

/// Runs the operation in g.shared().op. Called by its lanes. `in` may equal `out`: a line of `out` is written by the
/// lane that sent this line of `in`. world >= 2, bytes > 0. @return of this lane: kOpEnd is next
/// @param status of this lane so far
template <class M, Group G>
RINGBELL_TARGET Status one_shot_all_reduce(const WorkerContext& ctx, G& g, Status status) {
  GroupShared& shared = g.shared();
  const Operation& op = shared.op;
  for (Exchange exchange{0};; ++exchange.round) {
    // Lanes own their lines from round to round and do not wait for each other. Those that have none in a last round
    // that is shorter send nothing that would say that they have read the round before: they meet first.
    const bool is_short = exchange.round != 0 && bytes_of(op, exchange) < op.command.chunk_bytes;
    if (is_short && !mutated<M>(Mutant::kNoMeetBeforeShort)) status = g.agree(status, Edge::kSlotRead);
    if (g.lane() == 0) shared.op.step = exchange.round + 1;  // told when a wait is slow or fails
    switch (op.command.protocol) {
      case Protocol::kLL: status = do_exchange<OneShotLl<M, G>, M>(ctx, g, exchange, status); break;
      case Protocol::kLL128: status = do_exchange<OneShotLl128<M, G>, M>(ctx, g, exchange, status); break;
      case Protocol::kSimple: status = do_exchange<OneShotSimple<M, G>, M>(ctx, g, exchange, status); break;
      case Protocol::kAuto: return Status::kInvalidArgument;  // the planner never leaves it open
    }
    if (status == Status::kOk && !folds_inline(op.command, ctx.world)) fold_chunk<M>(ctx, g, exchange);
    if (ll_must_clean(epoch_of(shared, exchange), kDirectSets)) {
      status = clean_direct_set<M>(ctx, g, epoch_of(shared, exchange), status);
    }
    if (is_last(op, exchange)) {
      if (g.lane() == 0) {
        shared.published_bytes = op.bytes * (ctx.world - 1);
        shared.direct_end = epoch_of(shared, exchange) + 1;
      }
      return status;
    }
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_DIRECT_ONE_SHOT_HPP_
