// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The ring connection of one wire format: which slot is next in each direction, and its credits. The formats build on
// it.
#ifndef RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_
#define RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_

#include "device/math/reduce.hpp"
#include "device/mem/user_memory.hpp"
#include "device/ring/schedule.hpp"
#include "device/worker/wait.hpp"

namespace ringbell::device {

/// Free-running counters: true while fewer than `slots` filled slots wait to be freed. Signed, because a lane that has
/// no line in this slot may look only when the receiver has freed it already: `consumed` is then ahead of `sent`.
RINGBELL_HD constexpr bool has_room(std::uint64_t sent, std::uint64_t consumed, std::uint64_t slots) {
  return static_cast<std::int64_t>(sent - consumed) < static_cast<std::int64_t>(slots);
}
static_assert(has_room(2, ~0ull, 8) && !has_room(7, ~0ull, 8) && !has_room(5, ~0ull - 2, 8) && has_room(7, 8, 2));

/// Slots of the next rank that are known to be free when an operation begins.
RINGBELL_HD inline std::uint32_t free_slots(const WorkerContext& ctx, const GroupShared& shared) {
  const unsigned wire = wire_index(shared.op.command.protocol);
  return ctx.layout.slots - static_cast<std::uint32_t>(shared.persistent.epochs[wire].send - shared.credit_seen[wire]);
}

/// What a lane carries from step to step. Registers.
struct Progress {
  std::uint32_t room = 0;  // slots known to be free
  // A step without a barrier leaves its status to the next step that has one, so that all lanes stop together.
  Status carried = Status::kOk;
};

/// The fold of a step that does `verb`. The one whose result is kept takes in the last rank's input.
RINGBELL_HD constexpr ReduceRule fold_of(const Command& command, Verb verb, std::uint32_t world) {
  return {command.dtype, command.op, has(verb, Verb::kOut) && command.op == ReduceOp::kAvg ? world : 0};
}

/// Lane 0. Frees the slot of `recv_epoch`, after a barrier that every reading lane has passed.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE void store_credit(const WorkerContext& ctx, unsigned wire, std::uint64_t recv_epoch,
                                                  bool cleaned) {
  auto* line = reinterpret_cast<CreditLine*>(ctx.window[ctx.ring_prev] + ctx.layout.credit_offset(0, wire));
  if (cleaned) {
    M::store_release(&line->consumed, recv_epoch + 1, Edge::kCredit);
  } else {
    // Only loads must come first: their values were used before the barrier, and no store of the slot is ours.
    M::store_after_reads(&line->consumed, recv_epoch + 1, Edge::kCredit);
  }
}

template <class M, Group G, unsigned kWire>
class Connection {
 public:
  RINGBELL_TARGET Connection(const WorkerContext& ctx, G& g, const Step& step, Progress& progress)
      : ctx_(ctx), g_(g), step_(step), progress_(progress) {}

 protected:
  RINGBELL_TARGET bool does(Verb part) const { return has(step_.verb, part); }

  // The chunk in the caller's buffers.
  RINGBELL_TARGET const std::byte* input() const {
    return static_cast<const std::byte*>(g_.shared().op.command.in) + step_.begin;
  }
  RINGBELL_TARGET std::byte* output() const {
    return static_cast<std::byte*>(g_.shared().op.command.out) + step_.begin;
  }

  /// Every lane that will store waits for room in the next rank's slot by itself: the credit is local memory.
  RINGBELL_TARGET Status wait_credit() {
    if (progress_.room != 0) return Status::kOk;
    const auto* line =
        reinterpret_cast<const CreditLine*>(ctx_.window[ctx_.rank] + ctx_.layout.credit_offset(0, kWire));
    const std::uint32_t slots = ctx_.layout.slots;
    return wait_until<M>(ctx_, g_, {WaitFor::kCredit, ctx_.ring_next, step_.send_epoch + 1 - slots, &line->consumed},
                         [&] {
                           const std::uint64_t consumed = M::load_acquire(&line->consumed, Edge::kCredit);
                           if (!has_room(step_.send_epoch, consumed, slots)) return false;
                           progress_.room = slots - static_cast<std::uint32_t>(step_.send_epoch - consumed);
                           return true;
                         });
  }

  /// Frees the slot just read, after a barrier that every reading lane has passed.
  RINGBELL_TARGET void return_credit(bool cleaned) {
    if (g_.lane() != 0 || step_.owed) return;
    store_credit<M>(ctx_, kWire, step_.recv_epoch, cleaned);
  }

  RINGBELL_TARGET ReduceRule fold() const { return fold_of(g_.shared().op.command, step_.verb, ctx_.world); }

  RINGBELL_TARGET void count_sent() {
    if (g_.lane() == 0) g_.shared().published_bytes += step_.bytes;
    --progress_.room;
  }

  const WorkerContext& ctx_;
  G& g_;
  const Step& step_;
  Progress& progress_;
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_
