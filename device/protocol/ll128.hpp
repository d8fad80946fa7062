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
class Ll128Protocol : public Connection<M, G> {
  using Base = Connection<M, G>;
  using Base::carried_;
  using Base::ctx_;
  using Base::epochs_;
  using Base::g_;
  // Quads of a line that one lane moves: 1 on CUDA (8 lanes a line), 8 where one thread stands for the group.
  static constexpr unsigned kQuads = kLl128Quads / G::kLineLanes;

 public:
  RINGBELL_TARGET Ll128Protocol(const WorkerContext& ctx, G& g) : Base(ctx, g, wire_index(Protocol::kLL128)) {}

  /// As LlProtocol::move.
  template <bool kRecv, bool kOwn, bool kOut, bool kSend>
  RINGBELL_TARGET Status move(const std::byte* in, std::byte* out, ByteRange range, ReduceRule rule) {
    const std::uint64_t lines = (range.bytes + kLl128PayloadBytes - 1) / kLl128PayloadBytes;
    const auto* from = reinterpret_cast<const Ll128Line*>(this->recv_slot());
    auto* to = reinterpret_cast<Ll128Line*>(this->send_slot());
    Status status = carried_;
    if constexpr (kSend) {
      if (status == Status::kOk) status = this->wait_credit();
    }
    // Lanes of a line leave together, or the votes below would wait for one that is gone.
    const bool ok = g_.line_all(status == Status::kOk);
    if (!ok && status == Status::kOk) status = Status::kAborted;
    if constexpr (kRecv && mutated<M>(Mutant::kCreditBeforeRead)) this->return_credit(false);
    const unsigned first_quad = g_.line_lane() * kQuads;
    for (std::uint64_t line = g_.lane() / G::kLineLanes; line < lines && status == Status::kOk;
         line += g_.lanes() / G::kLineLanes) {
      Quad quad[kQuads];
      if constexpr (kOwn) {
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) quad[q] = load_own(in, range, line, first_quad + q);
      }
      if constexpr (kRecv) {
        Quad arrived[kQuads];
        status = recv_line(&from[line], first_quad, arrived);
        if (status != Status::kOk) break;
        RINGBELL_UNROLL
        for (unsigned q = 0; q < kQuads; ++q) quad[q] = kOwn ? reduce(arrived[q], quad[q], rule) : arrived[q];
      }
      RINGBELL_UNROLL
      for (unsigned q = 0; q < kQuads; ++q) {
        if constexpr (kOut) store_out(out, range, line, first_quad + q, quad[q]);
        if constexpr (kSend) send_quad(&to[line], first_quad + q, quad[q]);
      }
    }
    if constexpr (kSend) {
      this->count_published(range.bytes);
      ++epochs_.send;
    }
    if constexpr (kRecv) {
      status = g_.agree(status, Edge::kSlotRead);
      if constexpr (!mutated<M>(Mutant::kCreditBeforeRead)) {
        if (status == Status::kOk) this->return_credit(false);
      }
      ++epochs_.recv;
    }
    carried_ = status;
    return kRecv ? status : Status::kOk;
  }

 private:
  static constexpr unsigned kFlagQuad = kLl128Quads - 1;

  // The flag quad carries 8 bytes of payload, the others 16.
  RINGBELL_TARGET static Quad load_own(const std::byte* in, ByteRange range, std::uint64_t line, unsigned quad) {
    const std::uint64_t at = line * kLl128PayloadBytes + quad * kQuadBytes;
    const std::byte* p = in + range.begin + at;
    Quad own{load_pack8<M>(p, valid_bytes(range.bytes, at, 8)), 0};
    if (quad != kFlagQuad) own.hi = load_pack8<M>(p + 8, valid_bytes(range.bytes, at + 8, 8));
    return own;
  }
  RINGBELL_TARGET static void store_out(std::byte* out, ByteRange range, std::uint64_t line, unsigned quad, Quad value) {
    const std::uint64_t at = line * kLl128PayloadBytes + quad * kQuadBytes;
    std::byte* p = out + range.begin + at;
    store_pack8<M>(p, value.lo, valid_bytes(range.bytes, at, 8));
    if (quad != kFlagQuad) store_pack8<M>(p + 8, value.hi, valid_bytes(range.bytes, at + 8, 8));
  }
  RINGBELL_TARGET RINGBELL_INLINE void send_quad(Ll128Line* to, unsigned quad, Quad value) {
    if (quad == kFlagQuad) {
      M::publish_flag_quad(&to->quad[quad], Quad{value.lo, ll128_flag(epochs_.send)}, Edge::kLl128Flag);
    } else {
      M::publish_quad(&to->quad[quad], value);
    }
  }
  RINGBELL_TARGET RINGBELL_INLINE static Quad read_quad(const Ll128Line* line, unsigned quad) {
    return quad == kFlagQuad ? M::read_flag_quad(&line->quad[quad], Edge::kLl128Flag) : M::read_quad(&line->quad[quad]);
  }

  RINGBELL_TARGET RINGBELL_INLINE Status recv_line(const Ll128Line* line, unsigned first_quad, Quad* arrived) {
    const std::uint64_t flag = ll128_flag(epochs_.recv);
    const auto read_all = [&] {
      bool ready = true;
      RINGBELL_UNROLL
      for (unsigned q = 0; q < kQuads; ++q) {
        arrived[q] = read_quad(line, first_quad + q);
        if (first_quad + q == kFlagQuad) ready = arrived[q].hi == flag;
      }
      return g_.line_all(ready);
    };
    const auto vote = [&](bool leave) { return !g_.line_all(!leave); };
    const Status status = wait_until<M>(
        ctx_, g_, {WaitFor::kLine, ctx_.ring_prev, flag, &line->quad[kFlagQuad].hi}, read_all, vote);
    if (!mutated<M>(Mutant::kNoLl128Reload) && status == Status::kOk) read_all();
    return status;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL128_HPP_
