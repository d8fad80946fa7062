// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The slot sets of the direct algorithms, in which every rank stores to every other: one epoch uses one set of every
// window. Two sets, used in turn, and no credits: a rank that has received from every peer in epoch e knows that they
// have left e - 1, because each stored its lines of e after it had read those of e - 1. It may then store those of
// e + 1, over e - 1. What this rests on: every rank sends every other at least one line an epoch, and what a rank
// stores in e + 1 says that it has read all of e: a lane that owns its lines stores them when it has read those of e,
// and lanes meet where the next epoch has fewer lines, and between operations.
//
// All formats share one epoch, so the proof holds across calls of different formats.
#ifndef RINGBELL_DEVICE_DIRECT_SLOTS_HPP_
#define RINGBELL_DEVICE_DIRECT_SLOTS_HPP_

#include "device/math/fold_wide.hpp"
#include "device/mem/user_memory.hpp"
#include "device/worker/wait.hpp"

namespace ringbell::device {

/// One chunk that every rank sends to every other: a round of the operation in the group's shared storage. A number
/// and not what follows from it: lanes are in different rounds, and registers are few.
struct Exchange {
  std::uint32_t round;
};

RINGBELL_HD inline std::uint64_t begin_of(const Operation& op, Exchange exchange) {
  return std::uint64_t{exchange.round} * op.command.chunk_bytes;
}
RINGBELL_HD inline bool is_last(const Operation& op, Exchange exchange) {
  return op.bytes - begin_of(op, exchange) <= op.command.chunk_bytes;
}
RINGBELL_HD inline std::uint32_t bytes_of(const Operation& op, Exchange exchange) {
  return is_last(op, exchange) ? static_cast<std::uint32_t>(op.bytes - begin_of(op, exchange)) : op.command.chunk_bytes;
}
RINGBELL_HD inline std::uint64_t epoch_of(const GroupShared& shared, Exchange exchange) {
  return shared.persistent.direct_epoch + exchange.round;
}
RINGBELL_HD inline const std::byte* input_of(const Operation& op, Exchange exchange) {
  return static_cast<const std::byte*>(op.command.in) + begin_of(op, exchange);
}
RINGBELL_HD inline std::byte* output_of(const Operation& op, Exchange exchange) {
  return static_cast<std::byte*>(op.command.out) + begin_of(op, exchange);
}

/// Where the lines of one epoch lie, in bytes of a window.
struct DirectSlots {
  std::uint32_t first;   // in the own window: what rank 0 stores
  std::uint32_t stride;  // from rank to rank
  std::uint32_t mine;    // in every peer's window: what this rank stores
};

RINGBELL_HD inline DirectSlots direct_slots(const WorkerContext& ctx, unsigned wire, std::uint64_t epoch) {
  const DirectRegion& region = ctx.direct[wire];
  const std::uint32_t first = region.first + (static_cast<std::uint32_t>(epoch) & 1) * region.set_bytes;
  return {first, region.slot_bytes, first + ctx.rank * region.slot_bytes};
}

/// The peer that comes `at` steps behind this rank, 1 <= at < world: ranks that begin with different ones do not meet
/// at the same window.
RINGBELL_HD inline std::uint32_t peer_at(const WorkerContext& ctx, std::uint32_t at) {
  const std::uint32_t peer = ctx.rank + at;
  return peer >= ctx.world ? peer - ctx.world : peer;
}

/// What the wire formats of one-shot share: one exchange of one lane, and where its lines go.
template <class M, Group G, unsigned kWireIndex>
class OneShotWire {
 public:
  static constexpr unsigned kWire = kWireIndex;

  RINGBELL_TARGET OneShotWire(const WorkerContext& ctx, G& g, Exchange exchange)
      : ctx_(ctx), g_(g), exchange_(exchange) {}

 protected:
  RINGBELL_TARGET const Operation& op() const { return g_.shared().op; }
  RINGBELL_TARGET std::uint64_t epoch() const { return epoch_of(g_.shared(), exchange_); }
  RINGBELL_TARGET DirectSlots slots() const { return direct_slots(ctx_, kWire, epoch()); }

  const WorkerContext& ctx_;
  G& g_;
  Exchange exchange_;
};

/// The folds that the loops which take lines do on the way. The others are for fold_chunk.
RINGBELL_HD inline bool folds_inline(const Command& command, std::uint32_t ranks) {
  return command.protocol != Protocol::kLL128 && command.op == ReduceOp::kSum && is_inlined_sum(command.dtype) &&
         !folds_wide(command.dtype, command.op, ranks);
}

/// Folds this lane's words, for every wire format, with `fold(load)`, which maps a rank to its word. The lines have
/// arrived, and stay until this lane sends again.
template <class M, Group G, class Fold>
RINGBELL_TARGET RINGBELL_INLINE void fold_words(const WorkerContext& ctx, G& g, Exchange exchange, Fold fold) {
  const Operation& op = g.shared().op;
  const bool ll = op.command.protocol == Protocol::kLL;
  const bool ll128 = op.command.protocol == Protocol::kLL128;
  const DirectSlots slots = direct_slots(ctx, wire_index(op.command.protocol), epoch_of(g.shared(), exchange));
  constexpr std::uint32_t kLineWords = kLl128LineBytes / 8;
  // A lane's words lie together; in LL128 a line's last one is its flag, and holds nothing.
  const std::uint32_t together = ll128 ? kLineWords / G::kLineLanes : 1;
  const std::uint32_t bytes = bytes_of(op, exchange);
  const auto byte_of = [ll128](std::uint32_t word) { return (ll128 ? word - word / kLineWords : word) * 8; };
  RINGBELL_ROLLED
  for (std::uint32_t word = g.lane() * together; byte_of(word) < bytes;) {
    const bool flag = ll128 && word % kLineWords == kLineWords - 1;
    const std::uint32_t at = byte_of(word);
    const unsigned valid = flag ? 0 : valid_bytes(bytes, at, 8);
    const std::uint64_t own = load_pack8<M>(input_of(op, exchange) + at, valid);
    const std::byte* const of_rank_0 = ctx.window[ctx.rank] + slots.first + word * (ll ? sizeof(LlLine) : 8);
    const std::uint64_t folded = fold([&](std::uint32_t rank) {
      if (rank == ctx.rank) return own;
      const auto* const words = reinterpret_cast<const std::uint64_t*>(of_rank_0 + rank * slots.stride);
      const std::uint64_t low = M::load_relaxed(words);
      return ll ? ll_payload({{low, M::load_relaxed(words + 1)}}) : low;
    });
    store_pack8<M>(output_of(op, exchange) + at, folded, valid);
    ++word;
    if (word % together == 0) word += (g.lanes() - 1) * together;
  }
}

/// All folds but those of folds_inline, in rank order. In one place, where little else is kept, and not functions: the
/// folds that they call would get their registers on top of theirs.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_INLINE void fold_chunk(const WorkerContext& ctx, G& g, Exchange exchange) {
  const Command& command = g.shared().op.command;
  const bool wide = folds_wide(command.dtype, command.op, ctx.world);
  if (wide) {
    fold_words<M>(ctx, g, exchange,
                  [&](const auto& load) { return fold_wide(load, command.dtype, command.op, ctx.world); });
  }
  if (!wide) {
    fold_words<M>(ctx, g, exchange, [&](const auto& load) {
      std::uint64_t folded = load(0);
      RINGBELL_ROLLED
      for (std::uint32_t rank = 1; rank < ctx.world; ++rank) {
        // The last fold ends an average.
        const ReduceRule rule{command.dtype, command.op, rank + 1 == ctx.world ? ctx.world : 0};
        folded = detail::reduce_word(folded, load(rank), detail::pack_rule(rule));
      }
      return folded;
    });
  }
}

/// All lanes. Near the wrap of LL's flag the owner zeroes the set that it has read before anybody may store into it
/// again: a line that short messages leave untouched for 2^32 - 1 epochs would match once more. In every format,
/// because they share the epoch.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE Status clean_direct_set(const WorkerContext& ctx, G& g, std::uint64_t epoch,
                                                          Status status) {
  status = g.agree(status, Edge::kSlotRead);
  if (status != Status::kOk) return status;
  const DirectRegion& region = ctx.direct[wire_index(Protocol::kLL)];
  auto* words = reinterpret_cast<std::uint64_t*>(ctx.window[ctx.rank] +
                                                 direct_slots(ctx, wire_index(Protocol::kLL), epoch).first);
  if constexpr (mutated<M>(Mutant::kDirectNotCleaned)) return status;
  for (std::uint32_t i = g.lane(); i < region.set_bytes / 8; i += g.lanes()) M::store_relaxed(&words[i], 0);
  M::fence_seq_cst(Edge::kSlotClean);
  return g.agree(Status::kOk, Edge::kSlotRead);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_DIRECT_SLOTS_HPP_
