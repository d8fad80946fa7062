// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One-shot over LL128: as over LL, in lines of 120 bytes that eight lanes share. They send, receive and reuse a line
// together.
#ifndef RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL128_HPP_
#define RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL128_HPP_

#include "device/direct/slots.hpp"
#include "device/protocol/ll128.hpp"

namespace ringbell::device {

template <class M, Group G>
class OneShotLl128 : public OneShotWire<M, G, wire_index(Protocol::kLL128)> {
  using Base = OneShotWire<M, G, wire_index(Protocol::kLL128)>;
  using Base::ctx_;
  using Base::exchange_;
  using Base::g_;

  using Lines = Ll128Lines<M, G>;
  static constexpr unsigned kQuads = Lines::kQuads;

 public:
  using Base::Base;

  /// Waits for nobody.
  RINGBELL_TARGET RINGBELL_INLINE void send() {
    const Operation& op = this->op();
    const std::byte* const in = input_of(op, exchange_);
    const std::uint32_t bytes = bytes_of(op, exchange_);
    const std::uint32_t mine = this->slots().mine;
    const std::uint64_t flag = ll128_flag(this->epoch());
    const unsigned first_quad = g_.line_lane() * kQuads;
    for (std::uint32_t line = g_.lane() / G::kLineLanes; line * kLl128PayloadBytes < bytes;
         line += g_.lanes() / G::kLineLanes) {
      Quad quad[kQuads];
      Lines::load_all(in, bytes, line, first_quad, quad);
      RINGBELL_ROLLED
      for (std::uint32_t at = 1; at < ctx_.world; ++at) {
        Lines::send(g_, reinterpret_cast<Ll128Line*>(ctx_.window[peer_at(ctx_, at)] + mine) + line, first_quad, quad,
                    flag);
      }
    }
  }

  /// Waits for the lines. What is read after that is whole.
  /// @param status the same to all lanes of a line, as what it returns
  RINGBELL_TARGET RINGBELL_INLINE Status receive(Status status) {
    const std::uint32_t bytes = bytes_of(this->op(), exchange_);
    for (std::uint32_t line = g_.lane() / G::kLineLanes; status == Status::kOk && line * kLl128PayloadBytes < bytes;
         line += g_.lanes() / G::kLineLanes) {
      status = wait_lines(line);
    }
    return status;
  }

 private:
  RINGBELL_TARGET const Ll128Line* line_of(const DirectSlots& slots, std::uint32_t line, std::uint32_t source) const {
    return reinterpret_cast<const Ll128Line*>(ctx_.window[ctx_.rank] + slots.first + source * slots.stride) + line;
  }

  RINGBELL_TARGET RINGBELL_INLINE Status wait_lines(std::uint32_t line) {
    Status status = Status::kOk;
    RINGBELL_ROLLED
    for (std::uint32_t source = 0; source < ctx_.world && status == Status::kOk; ++source) {
      if (source == ctx_.rank) continue;
      const DirectSlots slots = this->slots();
      const std::uint64_t flag = ll128_flag(this->epoch());
      status = Lines::wait(ctx_, g_, source, line_of(slots, line, source), flag);
    }
    return status;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL128_HPP_
