// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The steps of one ring AllReduce as addresses and flags, laid out a round ahead by one team, a step a lane: 512 lanes
// that worked them out for themselves would keep them in 512 sets of registers. Moves nothing.
#ifndef RINGBELL_DEVICE_RING_STEP_HPP_
#define RINGBELL_DEVICE_RING_STEP_HPP_

#include "device/ring/schedule.hpp"
#include "device/worker/context.hpp"

namespace ringbell::device {

/// The ring connection of one wire format. Constant while the worker runs.
struct Link {
  std::byte* send_slots;     // in the next rank's window
  std::byte* recv_slots;     // in the own window
  std::uint32_t slot_bytes;  // from slot to slot
  std::uint32_t slots;       // power of two
};

RINGBELL_HD inline Link make_link(const WorkerContext& ctx, unsigned wire) {
  const std::uint64_t first = ctx.layout.slot(wire, 0, 0);
  return {ctx.window[ctx.ring_next] + first, ctx.window[ctx.rank] + first,
          static_cast<std::uint32_t>(ctx.layout.slot(wire, 0, 1) - first), ctx.layout.slots};
}

/// One pass over one chunk that is not empty.
struct Step {
  std::uint64_t begin;  // of the chunk in the message
  std::byte* from;      // slots
  std::byte* to;
  std::uint64_t recv_epoch;
  std::uint64_t send_epoch;
  std::uint64_t recv_flag;  // of the wire format; 0 in Simple
  std::uint64_t send_flag;
  std::uint32_t bytes;
  Verb verb;
  bool clean;     // the slot read must be zeroed before it is freed
  bool first_in;  // the operation's first step that receives
  bool last_out;  // the operation's last step that passes anything on: the others get nothing more from this rank
  bool owed;      // of a launched call: the next one frees the slot read, see ask_for_turn
};

/// One trip of `world` chunks around the ring: its steps, and where the next one starts.
struct Round {
  Step step[ring_steps(kMaxRanks)];
  std::uint64_t end;    // byte of the message
  Epochs epochs;        // of the operation's wire format
  bool plain;           // the operation's only round, and no slot must be cleaned
  std::uint32_t steps;  // without those of empty chunks
  std::uint32_t first;  // steps that are done already
  bool last;
};

RINGBELL_HD inline std::uint64_t wire_flag(unsigned wire, std::uint64_t epoch) {
  return wire == wire_index(Protocol::kLL)      ? ll_flag(epoch)
         : wire == wire_index(Protocol::kLL128) ? ll128_flag(epoch)
                                                : 0;
}

/// Lays out the round that starts at byte `offset` and slot uses `epochs`. Called by all lanes of a team with equal
/// arguments; complete once they have met. Of the operation it looks at bytes, protocol and chunk_bytes only.
/// @param offset below op.bytes
RINGBELL_HD RINGBELL_NOINLINE inline void lay_out_round(const WorkerContext& ctx, const Operation& op,
                                                        const Link* links, std::uint64_t offset, Epochs epochs,
                                                        Round* round, unsigned lane, unsigned lanes) {
  const std::uint32_t world = ctx.world;
  const unsigned wire = wire_index(op.command.protocol);
  const Link link = links[wire];
  const auto chunk_bytes =
      static_cast<std::uint32_t>(round_chunk_bytes(op.bytes, offset, op.command.chunk_bytes, world));
  const std::uint32_t whole = world * chunk_bytes;
  const bool last = op.bytes - offset <= whole;
  const std::uint32_t bytes = last ? static_cast<std::uint32_t>(op.bytes - offset) : whole;
  const std::uint32_t last_step = ring_steps(world) - 1;  // it alone passes nothing on, as the first receives nothing
  const std::uint32_t filled = filled_chunks(bytes, chunk_bytes);
  const std::uint32_t steps = filled_steps(ctx.ring_index, filled, world);
  const std::uint32_t passing = steps & ((1u << last_step) - 1);
  RINGBELL_ROLLED
  for (std::uint32_t at = lane; at <= last_step + 1; at += lanes) {
    const std::uint32_t before = count_bits(steps & ((1u << at) - 1));
    if (at > last_step) {
      round->end = offset + whole;
      round->epochs.send = epochs.send + count_bits(passing);
      round->epochs.recv = epochs.recv + before - (steps & 1);
      round->steps = before;
      round->first = 0;
      round->last = last;
      // Of a round's receptions none is as far as this from the first.
      const bool clean = wire == wire_index(Protocol::kLL) && ll_must_clean(epochs.recv, link.slots + 2 * kMaxRanks);
      round->plain = last && offset == 0 && !clean;
      break;
    }
    if ((steps >> at & 1) == 0) continue;  // both ends know that the chunk is empty
    const std::uint32_t begin = ring_chunk(ctx.ring_index, at, world) * chunk_bytes;
    const std::uint64_t send = epochs.send + before;
    const std::uint64_t recv = epochs.recv + before - (steps & 1);
    Step& step = round->step[before];
    step.begin = offset + begin;
    step.from = link.recv_slots + (static_cast<std::uint32_t>(recv) & (link.slots - 1)) * link.slot_bytes;
    step.to = link.send_slots + (static_cast<std::uint32_t>(send) & (link.slots - 1)) * link.slot_bytes;
    step.recv_epoch = recv;
    step.send_epoch = send;
    step.recv_flag = wire_flag(wire, recv);
    step.send_flag = wire_flag(wire, send);
    step.bytes = bytes - begin < chunk_bytes ? bytes - begin : chunk_bytes;
    step.verb = ring_verb(at, world);
    step.clean = wire == wire_index(Protocol::kLL) && ll_must_clean(recv, link.slots);
    step.first_in = offset == 0 && at > 0 && before == (steps & 1);
    step.last_out = last && at < last_step && passing >> at == 1;
    step.owed = ctx.way == kStreamWay && last && steps >> at == 1 && !step.clean;
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_RING_STEP_HPP_
