// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The steps of one ring AllReduce as addresses and flags, laid out by lane 0 ahead of the barrier that hands them to
// the others: 512 lanes that worked them out for themselves would keep them in 512 sets of registers. Moves nothing.
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

/// One step: one pass over one chunk that is not empty.
struct Step {
  const std::byte* in;  // the chunk in the caller's buffers
  std::byte* out;
  std::byte* from;  // slots
  std::byte* to;
  std::uint64_t recv_epoch;
  std::uint64_t send_epoch;
  std::uint64_t recv_flag;  // of the wire format; 0 in Simple
  std::uint64_t send_flag;
  std::uint32_t bytes;
  Verb verb;   // kNone: there is no such step, the operation is over
  bool clean;  // the slot read must be zeroed before it is freed
};

/// At most: one that slow lanes are still in, the current one, and two ahead.
inline constexpr unsigned kSteps = 4;

/// How far the layout has come. Epochs are those of the operation's wire format.
struct RingCursor {
  std::uint64_t offset;  // of the round
  std::uint32_t chunk_bytes;
  std::uint32_t step;    // next one of the round
  std::uint32_t number;  // next one of the operation
  unsigned wire;
  Epochs epochs;
};

RINGBELL_HD inline std::uint64_t wire_flag(unsigned wire, std::uint64_t epoch) {
  return wire == wire_index(Protocol::kLL)      ? ll_flag(epoch)
         : wire == wire_index(Protocol::kLL128) ? ll128_flag(epoch)
                                                : 0;
}

RINGBELL_HD inline RingCursor first_step(const Command& command, std::uint64_t bytes, std::uint32_t world,
                                         const Epochs* epochs) {
  const unsigned wire = wire_index(command.protocol);
  const auto chunk = static_cast<std::uint32_t>(round_chunk_bytes(bytes, 0, command.chunk_bytes, world));
  return {0, chunk, 0, 0, wire, epochs[wire]};
}

/// Lays out the next steps up to one that receives, which ends with a barrier, or to the end of the operation.
/// @param steps kSteps of them; step `number` goes to number % kSteps
RINGBELL_HD RINGBELL_NOINLINE inline void lay_out_steps(const WorkerContext& ctx, const Operation& op,
                                                        const Link* links, RingCursor* cursor, Step* steps) {
  RingCursor& now = *cursor;
  const Link& link = links[now.wire];
  for (;;) {
    if (now.step == ring_steps(ctx.world)) {
      now.step = 0;
      now.offset += std::uint64_t{ctx.world} * now.chunk_bytes;
      if (now.offset < op.bytes) {
        now.chunk_bytes =
            static_cast<std::uint32_t>(round_chunk_bytes(op.bytes, now.offset, op.command.chunk_bytes, ctx.world));
      }
    }
    Step& step = steps[now.number % kSteps];
    if (now.offset >= op.bytes) {
      step.verb = Verb::kNone;
      return;
    }
    const ByteRange range =
        chunk_range(op.bytes, now.offset, now.chunk_bytes, ring_chunk(ctx.ring_index, now.step, ctx.world));
    const Verb verb = ring_verb(now.step, ctx.world);
    ++now.step;
    if (range.bytes == 0) continue;  // both ends know it
    ++now.number;
    step.in = static_cast<const std::byte*>(op.command.in) + range.begin;
    step.out = static_cast<std::byte*>(op.command.out) + range.begin;
    step.from = link.recv_slots + (now.epochs.recv & (link.slots - 1)) * link.slot_bytes;
    step.to = link.send_slots + (now.epochs.send & (link.slots - 1)) * link.slot_bytes;
    step.recv_epoch = now.epochs.recv;
    step.send_epoch = now.epochs.send;
    step.recv_flag = wire_flag(now.wire, now.epochs.recv);
    step.send_flag = wire_flag(now.wire, now.epochs.send);
    step.bytes = static_cast<std::uint32_t>(range.bytes);
    step.verb = verb;
    step.clean = now.wire == wire_index(Protocol::kLL) && ll_must_clean(now.epochs.recv, link.slots);
    if (has(verb, Verb::kPass)) ++now.epochs.send;
    if (has(verb, Verb::kRecv)) {
      ++now.epochs.recv;
      return;
    }
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_RING_STEP_HPP_
