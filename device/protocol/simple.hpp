// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Simple: a slot is filled in bulk, then one tail word counts it. No byte is lost to flags; each step pays a fence.
#ifndef RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_
#define RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_

#include "device/protocol/connection.hpp"

namespace ringbell::device {

template <class M, Group G>
class SimpleProtocol : public Connection<M, G> {
  using Base = Connection<M, G>;
  using Base::ctx_;
  using Base::epochs_;
  using Base::g_;

 public:
  RINGBELL_TARGET SimpleProtocol(const WorkerContext& ctx, G& g) : Base(ctx, g, wire_index(Protocol::kSimple)) {}

  /// As LlProtocol::move.
  template <bool kRecv, bool kOwn, bool kOut, bool kSend>
  RINGBELL_TARGET Status move(const std::byte* in, std::byte* out, ByteRange range, ReduceRule rule) {
    const std::uint64_t quads = (range.bytes + kQuadBytes - 1) / kQuadBytes;
    const auto* from = reinterpret_cast<const Quad*>(this->recv_slot());
    auto* to = reinterpret_cast<Quad*>(this->send_slot());
    // Lane 0 waits for all: one acquire, which the barrier hands to the other lanes.
    Status status = Status::kOk;
    if (g_.lane() == 0) {
      if constexpr (kSend) status = this->wait_credit();
      if constexpr (kRecv) {
        if (status == Status::kOk) status = wait_tail();
      }
    }
    status = g_.agree(status, Edge::kSlotFill);
    if (status != Status::kOk) return status;
    if constexpr (kRecv && mutated<M>(Mutant::kCreditBeforeRead)) this->return_credit(false);
    for (std::uint64_t i = g_.lane(); i < quads; i += g_.lanes()) {
      const std::uint64_t at = range.begin + i * kQuadBytes;
      const unsigned valid = valid_bytes(range.bytes, i * kQuadBytes, kQuadBytes);
      Quad pack{};
      if constexpr (kOwn) pack = load_pack16<M>(in + at, valid);
      if constexpr (kRecv) {
        const Quad arrived = M::read_quad(&from[i]);
        pack = kOwn ? reduce(arrived, pack, rule) : arrived;
      }
      if constexpr (kOut) store_pack16<M>(out + at, pack, valid);
      if constexpr (kSend) M::publish_quad(&to[i], pack);
    }
    g_.sync(kRecv ? Edge::kSlotRead : Edge::kSlotFill);
    if constexpr (kSend) {
      if (g_.lane() == 0) {
        auto* line = reinterpret_cast<TailLine*>(ctx_.window[ctx_.ring_next] + ctx_.layout.tail_offset(0));
        M::store_release(&line->filled, epochs_.send + 1, Edge::kTail);
      }
      this->count_published(range.bytes);
      ++epochs_.send;
    }
    if constexpr (kRecv) {
      if constexpr (!mutated<M>(Mutant::kCreditBeforeRead)) this->return_credit(false);
      ++epochs_.recv;
    }
    return Status::kOk;
  }

 private:
  RINGBELL_TARGET Status wait_tail() {
    const auto* line = reinterpret_cast<const TailLine*>(ctx_.window[ctx_.rank] + ctx_.layout.tail_offset(0));
    const std::uint64_t wanted = epochs_.recv + 1;
    return wait_until<M>(ctx_, g_, {WaitFor::kTail, ctx_.ring_prev, wanted, &line->filled}, [&] {
      const std::uint64_t filled = M::load_acquire(&line->filled, Edge::kTail);
      return static_cast<std::int64_t>(filled - wanted) >= 0;
    });
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_
