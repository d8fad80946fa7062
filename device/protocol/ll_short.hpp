// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// LL for messages of which every lane has at most one line a step: the protocol of ll.hpp, one round, without its
// loops. A short call waits for instructions and not for bytes, so a step is read once from shared memory and kept.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL_SHORT_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL_SHORT_HPP_

#include "device/protocol/ll.hpp"

namespace ringbell::device {

/// Every lane that will store waits for room by itself, off the hot path. Lane 0 notes what it saw.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE Status wait_ll_room(const WorkerContext& ctx, G& g, const Step& step) {
  Progress progress;
  const Status status = LlProtocol<M, G>(ctx, g, step, progress).wait_credit();
  if (g.lane() == 0) {
    g.shared().credit_seen[wire_index(Protocol::kLL)] = step.send_epoch - ctx.layout.slots + progress.room;
  }
  return status;
}

/// True for an operation that ll_short_ring can do: LL, its only round laid out, no slot to be cleaned, and a line a
/// lane, or all lanes would have been taken.
template <Group G>
RINGBELL_TARGET bool is_ll_short(G& g) {
  const GroupShared& shared = g.shared();
  return shared.op.command.protocol == Protocol::kLL && shared.rounds[0].plain && g.lanes() != g.all_lanes();
}

/// The whole operation. Called by its lanes, while another team looks after headers. @return as ring_all_reduce
template <class M, Group G>
RINGBELL_TARGET Status ll_short_ring(const WorkerContext& ctx, G& g) {
  constexpr unsigned kWire = wire_index(Protocol::kLL);
  GroupShared& shared = g.shared();
  const Command& command = shared.op.command;
  const std::uint32_t at = g.lane() * kLlPayloadBytes;
  Status status = Status::kOk;
  for (unsigned number = shared.rounds[0].first; number < shared.rounds[0].steps; ++number) {
    const Step step = shared.rounds[0].step[number];
    if (g.lane() == 0) {
      shared.op.step = number + 1;  // told when a wait is slow or fails
      if (has(step.verb, Verb::kPass)) shared.published_bytes += step.bytes;
    }
    // Another lane may see sooner than lane 0 that there is room, or later: what is noted only grows.
    if (has(step.verb, Verb::kPass) && status == Status::kOk &&
        !has_room(step.send_epoch, shared.credit_seen[kWire], ctx.layout.slots)) {
      status = wait_ll_room<M>(ctx, g, shared.rounds[0].step[number]);
    }
    if (mutated<M>(Mutant::kCreditBeforeRead) && has(step.verb, Verb::kRecv) && g.lane() == 0) {
      store_credit<M>(ctx, kWire, shared.rounds[0].step[number].recv_epoch, false);
    }
    if (at < step.bytes && status == Status::kOk) {
      const unsigned valid = valid_bytes(step.bytes, at, kLlPayloadBytes);
      std::uint64_t pack = 0;
      if (has(step.verb, Verb::kOwn)) {
        pack = load_pack8<M>(static_cast<const std::byte*>(command.in) + step.begin + at, valid);
      }
      if (has(step.verb, Verb::kRecv)) {
        const auto* line = reinterpret_cast<const LlLine*>(step.from) + g.lane();
        const LlWords words =
            take_ll_line<M>(ctx, g, ctx.ring_prev, line, static_cast<std::uint32_t>(step.recv_flag), &status);
        pack = has(step.verb, Verb::kOwn) ? reduce(ll_payload(words), pack, fold_of(command, step.verb, ctx.world))
                                          : ll_payload(words);
      }
      if (status == Status::kOk) {
        if (has(step.verb, Verb::kPass)) {
          M::publish_ll(reinterpret_cast<LlLine*>(step.to) + g.lane(),
                        ll_pack(pack, static_cast<std::uint32_t>(step.send_flag)));
        }
        if (has(step.verb, Verb::kOut)) {
          store_pack8<M>(static_cast<std::byte*>(command.out) + step.begin + at, pack, valid);
        }
      }
    }
    // A step that only sends has no barrier: a failure waits for the next one, so that all lanes stop together.
    // Nor has the last one, if its slot is not freed now: kOpEnd is next.
    if (has(step.verb, Verb::kRecv) && !step.owed) {
      status = g.agree(status, Edge::kSlotRead);
      if (status != Status::kOk) return status;
      if (!mutated<M>(Mutant::kCreditBeforeRead) && g.lane() == 0)
        store_credit<M>(ctx, kWire, shared.rounds[0].step[number].recv_epoch, false);
    }
  }
  if (g.lane() == 0) shared.persistent.epochs[kWire] = shared.rounds[0].epochs;
  return status;
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL_SHORT_HPP_
