// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// LL128: one flag for 120 bytes. Relies on the line's data being visible before its flag: a CPU orders it, between GPUs
// the torn-line test decides. After the flag matched, the data is read once more: a lane's first read may be older.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL128_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL128_HPP_

#include "device/protocol/connection.hpp"
#include "device/protocol/ll128_lines.hpp"

namespace ringbell::device {

template <class M, Group G>
class Ll128Protocol : public Connection<M, G, wire_index(Protocol::kLL128)> {
  using Base = Connection<M, G, wire_index(Protocol::kLL128)>;
  using Base::ctx_;
  using Base::does;
  using Base::g_;
  using Base::progress_;
  using Base::step_;
  using Lines = Ll128Lines<M, G>;
  static constexpr unsigned kQuads = Lines::kQuads;

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
        for (unsigned q = 0; q < kQuads; ++q) quad[q] = Lines::load_own(in, bytes, line, first_quad + q);
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
      if (has(verb, Verb::kPass)) Lines::send(g_, &to[line], first_quad, quad, step_.send_flag);
      if (has(verb, Verb::kOut)) {
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) Lines::store_out(out, bytes, line, first_quad + q, quad[q]);
      }
    }
    *from_line = line;
    return line * kLl128PayloadBytes >= bytes;
  }

  // As Ll128Lines::read and wait, which one-shot uses: through those the ring's kernels spill registers.

  /// @return true, to all lanes of the line, when its flag matches. Only what is read after that is whole.
  RINGBELL_TARGET RINGBELL_INLINE bool read_line(const Ll128Line* line, unsigned first_quad, Quad* arrived) {
    bool ready = true;
    RINGBELL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) {
      arrived[q] = Lines::read_quad(line, first_quad + q);
      if (first_quad + q == Lines::kFlagQuad) ready = arrived[q].hi == step_.recv_flag;
    }
    return g_.line_all(ready);
  }

  RINGBELL_TARGET Status wait_line(std::uint32_t at) {
    const Ll128Line* line = reinterpret_cast<const Ll128Line*>(step_.from) + at;
    Quad unused[kQuads];
    return wait_until<M>(
        ctx_, g_, {WaitFor::kLine, ctx_.ring_prev, step_.recv_flag, &line->quad[Lines::kFlagQuad].hi},
        [&] { return read_line(line, g_.line_lane() * kQuads, unused); },
        [&](bool leave) { return !g_.line_all(!leave); });
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL128_HPP_
