// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Simple: a slot is filled in bulk, then one tail word counts it. No byte is lost to flags; each step pays a fence.
#ifndef RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_
#define RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_

#include "device/protocol/connection.hpp"

namespace ringbell::device {

template <class M, Group G>
class SimpleProtocol : public Connection<M, G, wire_index(Protocol::kSimple)> {
  using Base = Connection<M, G, wire_index(Protocol::kSimple)>;
  using Base::ctx_;
  using Base::does;
  using Base::g_;
  using Base::progress_;
  using Base::step_;

 public:
  using Base::Base;

  /// As LlProtocol::move.
  RINGBELL_TARGET Status move() {
    // Lane 0 waits for all: one acquire, which the barrier hands to the other lanes.
    Status status = progress_.carried;
    if (g_.lane() == 0 && status == Status::kOk) {
      if (does(Verb::kPass)) status = this->wait_credit();
      if (does(Verb::kRecv) && status == Status::kOk) status = wait_tail();
    }
    status = g_.agree(status, Edge::kSlotFill);
    if (status != Status::kOk) return status;
    if (mutated<M>(Mutant::kCreditBeforeRead) && does(Verb::kRecv)) this->return_credit(false);
    pass();
    g_.sync(does(Verb::kRecv) ? Edge::kSlotRead : Edge::kSlotFill);
    if (does(Verb::kPass)) {
      if (g_.lane() == 0) {
        auto* line = reinterpret_cast<TailLine*>(ctx_.window[ctx_.ring_next] + ctx_.layout.tail_offset(0));
        M::store_release(&line->filled, step_.send_epoch + 1, Edge::kTail);
      }
      this->count_sent();
    }
    if (!mutated<M>(Mutant::kCreditBeforeRead) && does(Verb::kRecv)) this->return_credit(false);
    return Status::kOk;
  }

 private:
  static constexpr std::uint32_t kPack = kQuadBytes;

  RINGBELL_TARGET void pass() {
    const std::byte* const in = this->input();
    std::byte* const out = this->output();
    const std::byte* const from = step_.from;
    std::byte* const to = step_.to;
    const std::uint32_t bytes = step_.bytes;
    const Verb verb = step_.verb;
    for (std::uint32_t at = g_.lane() * kPack; at < bytes; at += g_.lanes() * kPack) {
      const unsigned valid = valid_bytes(bytes, at, kPack);
      Quad pack{};
      if (has(verb, Verb::kOwn)) pack = load_pack16<M>(in + at, valid);
      if (has(verb, Verb::kRecv)) {
        const Quad arrived = M::read_quad(reinterpret_cast<const Quad*>(from + at));
        pack = has(verb, Verb::kOwn) ? reduce(arrived, pack, this->fold()) : arrived;
      }
      if (has(verb, Verb::kOut)) store_pack16<M>(out + at, pack, valid);
      if (has(verb, Verb::kPass)) M::publish_quad(reinterpret_cast<Quad*>(to + at), pack);
    }
  }

  RINGBELL_TARGET Status wait_tail() {
    const auto* line = reinterpret_cast<const TailLine*>(ctx_.window[ctx_.rank] + ctx_.layout.tail_offset(0));
    const std::uint64_t wanted = step_.recv_epoch + 1;
    return wait_until<M>(ctx_, g_, {WaitFor::kTail, ctx_.ring_prev, wanted, &line->filled}, [&] {
      const std::uint64_t filled = M::load_acquire(&line->filled, Edge::kTail);
      return static_cast<std::int64_t>(filled - wanted) >= 0;
    });
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_SIMPLE_HPP_
