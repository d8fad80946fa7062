// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// LL128: one flag for 120 bytes. Relies on the line's data being visible before its flag: a CPU orders it, between GPUs
// the torn-line test decides. After the flag matched, the data is read once more: a lane's first read may be older.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL128_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL128_HPP_

#include "device/protocol/connection.hpp"

namespace ringbell::device {

template <class M, Group G>
class Ll128Protocol : public Connection<M, G, wire_index(Protocol::kLL128)> {
  using Base = Connection<M, G, wire_index(Protocol::kLL128)>;
  using Base::ctx_;
  using Base::does;
  using Base::g_;
  using Base::progress_;
  using Base::step_;
  // Quads of a line that one lane moves: 1 on CUDA (8 lanes a line), 8 where one thread stands for the group.
  static constexpr unsigned kQuads = kLl128Quads / G::kLineLanes;

 public:
  using Base::Base;

  /// As LlProtocol::move.
  RINGBELL_TARGET Status move() {
    Status status = progress_.carried;
    if (does(Verb::kPass) && status == Status::kOk) status = this->wait_credit();
    // Lanes of a line leave together, or the votes of the others would wait for one that is gone.
    const bool ok = g_.line_all(status == Status::kOk);
    if (!ok && status == Status::kOk) status = Status::kAborted;
    if (mutated<M>(Mutant::kCreditBeforeRead) && does(Verb::kRecv)) this->return_credit(false);
    std::uint32_t line = g_.lane() / G::kLineLanes;
    while (status == Status::kOk && !pass(&line)) status = wait_line(line);
    if (does(Verb::kPass)) this->count_sent();
    if (!does(Verb::kRecv)) {
      progress_.carried = status;
      return Status::kOk;
    }
    status = g_.agree(status, Edge::kSlotRead);
    if (!mutated<M>(Mutant::kCreditBeforeRead) && status == Status::kOk) this->return_credit(false);
    return status;
  }

 private:
  static constexpr unsigned kFlagQuad = kLl128Quads - 1;

  /// As LlProtocol's, in lines; the answer is the same for all lanes of a line.
  RINGBELL_TARGET RINGBELL_INLINE bool pass(std::uint32_t* from_line) {
    const std::byte* const in = this->input();
    std::byte* const out = this->output();
    const auto* const from = reinterpret_cast<const Ll128Line*>(step_.from);
    auto* const to = reinterpret_cast<Ll128Line*>(step_.to);
    const std::uint32_t bytes = step_.bytes;
    const Verb verb = step_.verb;
    const unsigned first_quad = g_.line_lane() * kQuads;
    std::uint32_t line = *from_line;
    for (; line * kLl128PayloadBytes < bytes; line += g_.lanes() / G::kLineLanes) {
      Quad quad[kQuads];
      if (has(verb, Verb::kOwn)) {
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) quad[q] = load_own(in, bytes, line, first_quad + q);
      }
      if (has(verb, Verb::kRecv)) {
        Quad arrived[kQuads];
        const auto read_all = [&] { return read_line(&from[line], first_quad, arrived); };
        if (!poll<M>(read_all)) break;
        if (!mutated<M>(Mutant::kNoLl128Reload)) read_all();
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) {
          quad[q] = has(verb, Verb::kOwn) ? reduce(arrived[q], quad[q], this->fold()) : arrived[q];
        }
      }
      if (has(verb, Verb::kPass)) send_line(&to[line], first_quad, quad);
      if (has(verb, Verb::kOut)) {
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) store_out(out, bytes, line, first_quad + q, quad[q]);
      }
    }
    *from_line = line;
    return line * kLl128PayloadBytes >= bytes;
  }

  /// @return true, to all lanes of the line, when its flag matches. Only what is read after that is whole.
  RINGBELL_TARGET RINGBELL_INLINE bool read_line(const Ll128Line* line, unsigned first_quad, Quad* arrived) {
    bool ready = true;
    RINGBELL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) {
      arrived[q] = read_quad(line, first_quad + q);
      if (first_quad + q == kFlagQuad) ready = arrived[q].hi == step_.recv_flag;
    }
    return g_.line_all(ready);
  }

  RINGBELL_TARGET Status wait_line(std::uint32_t at) {
    const Ll128Line* line = reinterpret_cast<const Ll128Line*>(step_.from) + at;
    Quad unused[kQuads];
    return wait_until<M>(
        ctx_, g_, {WaitFor::kLine, ctx_.ring_prev, step_.recv_flag, &line->quad[kFlagQuad].hi},
        [&] { return read_line(line, g_.line_lane() * kQuads, unused); },
        [&](bool leave) { return !g_.line_all(!leave); });
  }

  // The flag quad carries 8 bytes of payload, the others 16.
  RINGBELL_TARGET static Quad load_own(const std::byte* in, std::uint32_t bytes, std::uint32_t line, unsigned quad) {
    const auto at = static_cast<std::uint32_t>(line * kLl128PayloadBytes + quad * kQuadBytes);
    Quad own{load_pack8<M>(in + at, valid_bytes(bytes, at, 8)), 0};
    if (quad != kFlagQuad) own.hi = load_pack8<M>(in + at + 8, valid_bytes(bytes, at + 8, 8));
    return own;
  }
  RINGBELL_TARGET static void store_out(std::byte* out, std::uint32_t bytes, std::uint32_t line, unsigned quad,
                                        Quad value) {
    const auto at = static_cast<std::uint32_t>(line * kLl128PayloadBytes + quad * kQuadBytes);
    store_pack8<M>(out + at, value.lo, valid_bytes(bytes, at, 8));
    if (quad != kFlagQuad) store_pack8<M>(out + at + 8, value.hi, valid_bytes(bytes, at + 8, 8));
  }
  // Lanes that share a line store it by ONE instruction: a branch on the flag quad, or lanes that come one by one,
  // would let the flag out before the data. Unaligned packs and reduce() part the lanes, so they are called together
  // first; that is no promise that they stay together, so it is asked for, and lanes that are apart pay for an order.
  // One lane alone always orders its stores.
  RINGBELL_TARGET RINGBELL_INLINE void send_line(Ll128Line* to, unsigned first_quad, Quad (&quad)[kQuads]) {
    if (first_quad + kQuads == kLl128Quads) quad[kQuads - 1].hi = step_.send_flag;
    if constexpr (G::kLineLanes > 1) {
      g_.line_sync();
      if (g_.line_together()) {
        M::publish_quad(&to->quad[first_quad], quad[0]);
      } else {
        if (first_quad != kFlagQuad) M::publish_quad(&to->quad[first_quad], quad[0]);
        g_.line_sync();
        if (first_quad == kFlagQuad) M::publish_flag_quad(&to->quad[first_quad], quad[0], Edge::kLl128Flag);
      }
    } else {
      for (unsigned q = 0; q < kFlagQuad; ++q) M::publish_quad(&to->quad[q], quad[q]);
      M::publish_flag_quad(&to->quad[kFlagQuad], quad[kFlagQuad], Edge::kLl128Flag);
    }
  }
  RINGBELL_TARGET RINGBELL_INLINE static Quad read_quad(const Ll128Line* line, unsigned quad) {
    if constexpr (G::kLineLanes > 1) return M::read_quad(&line->quad[quad]);
    return quad == kFlagQuad ? M::read_flag_quad(&line->quad[quad], Edge::kLl128Flag) : M::read_quad(&line->quad[quad]);
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL128_HPP_
