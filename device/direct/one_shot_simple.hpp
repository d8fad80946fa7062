// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One-shot over Simple: all lanes store the chunk into every peer's window, one word to each peer counts it. Two
// barriers and a fence a chunk.
#ifndef RINGBELL_DEVICE_DIRECT_ONE_SHOT_SIMPLE_HPP_
#define RINGBELL_DEVICE_DIRECT_ONE_SHOT_SIMPLE_HPP_

#include "device/direct/slots.hpp"

namespace ringbell::device {

template <class M, Group G>
class OneShotSimple : public OneShotWire<M, G, wire_index(Protocol::kSimple)> {
  using Base = OneShotWire<M, G, wire_index(Protocol::kSimple)>;
  using Base::ctx_;
  using Base::exchange_;
  using Base::g_;

 public:
  static constexpr std::uint32_t kPack = kQuadBytes;

  using Base::Base;

  RINGBELL_TARGET RINGBELL_INLINE void send() {
    const Operation& op = this->op();
    const std::byte* const in = input_of(op, exchange_);
    const std::uint32_t bytes = bytes_of(op, exchange_);
    const std::uint32_t mine = this->slots().mine;
    for (std::uint32_t at = g_.lane() * kPack; at < bytes; at += g_.lanes() * kPack) {
      const Quad pack = load_pack16<M>(in + at, valid_bytes(bytes, at, kPack));
      RINGBELL_ROLLED
      for (std::uint32_t peer = 1; peer < ctx_.world; ++peer) {
        M::publish_quad(reinterpret_cast<Quad*>(ctx_.window[peer_at(ctx_, peer)] + mine + at), pack);
      }
    }
  }

  /// As OneShotLl's. @return the same to all lanes
  RINGBELL_TARGET RINGBELL_INLINE Status receive(Status status) {
    status = g_.agree(status, Edge::kSlotFill);
    if (status != Status::kOk) return status;
    status = g_.agree(exchange_tails(), Edge::kSlotFill);
    if (status != Status::kOk) return status;
    if (folds_inline(this->op().command, ctx_.world)) fold();
    return Status::kOk;
  }

 private:
  /// Every lane: tells and awaits as many peers as there are for it. One acquire a peer, which the barrier hands to the
  /// other lanes.
  RINGBELL_TARGET Status exchange_tails() {
    const std::uint64_t wanted = this->epoch() + 1;
    for (std::uint32_t at = g_.lane() + 1; at < ctx_.world; at += g_.lanes()) {
      auto* line =
          reinterpret_cast<TailLine*>(ctx_.window[peer_at(ctx_, at)] + ctx_.layout.direct_tail_offset(ctx_.rank));
      M::store_release(&line->filled, wanted, Edge::kTail);
    }
    for (std::uint32_t at = g_.lane() + 1; at < ctx_.world; at += g_.lanes()) {
      const std::uint32_t peer = peer_at(ctx_, at);
      const auto* line =
          reinterpret_cast<const TailLine*>(ctx_.window[ctx_.rank] + ctx_.layout.direct_tail_offset(peer));
      const Status status = wait_until<M>(ctx_, g_, {WaitFor::kTail, peer, wanted, &line->filled}, [&] {
        const std::uint64_t filled = M::load_acquire(&line->filled, Edge::kTail);
        return static_cast<std::int64_t>(filled - wanted) >= 0;
      });
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  RINGBELL_TARGET RINGBELL_INLINE void fold() {
    const Operation& op = this->op();
    const std::byte* const in = input_of(op, exchange_);
    std::byte* const out = output_of(op, exchange_);
    const std::uint32_t bytes = bytes_of(op, exchange_);
    const DirectSlots slots = this->slots();
    const DType dtype = op.command.dtype;
    const std::byte* const first = ctx_.window[ctx_.rank] + slots.first;
    for (std::uint32_t at = g_.lane() * kPack; at < bytes; at += g_.lanes() * kPack) {
      const unsigned valid = valid_bytes(bytes, at, kPack);
      Quad folded{};
      RINGBELL_ROLLED
      for (std::uint32_t source = 0; source < ctx_.world; ++source) {
        const auto* const from = reinterpret_cast<const Quad*>(first + source * slots.stride + at);
        const Quad pack = source == ctx_.rank ? load_pack16<M>(in + at, valid) : M::read_quad(from);
        folded = source == 0 ? pack : add_inlined(folded, pack, dtype);
      }
      store_pack16<M>(out + at, folded, valid);
    }
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_DIRECT_ONE_SHOT_SIMPLE_HPP_
