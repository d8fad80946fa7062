// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One LL128 line by the lanes that share it: load it from user memory, send it, look for it, keep it. Which line goes
// where is the caller's.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL128_LINES_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL128_LINES_HPP_

#include "device/layout/ll128_line.hpp"
#include "device/mem/user_memory.hpp"
#include "device/worker/wait.hpp"

namespace ringbell::device {

template <class M, Group G>
struct Ll128Lines {
  // Quads of a line that one lane moves: 1 on CUDA (8 lanes a line), 8 where one thread stands for the group.
  static constexpr unsigned kQuads = kLl128Quads / G::kLineLanes;
  static constexpr unsigned kFlagQuad = kLl128Quads - 1;

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
  RINGBELL_TARGET static void load_all(const std::byte* in, std::uint32_t bytes, std::uint32_t line,
                                       unsigned first_quad, Quad (&quad)[kQuads]) {
    RINGBELL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) quad[q] = load_own(in, bytes, line, first_quad + q);
  }

  // Lanes that share a line store it by ONE instruction: a branch on the flag quad, or lanes that come one by one,
  // would let the flag out before the data. Unaligned packs and reduce() part the lanes, so they are called together
  // first; that is no promise that they stay together, so it is asked for, and lanes that are apart pay for an order.
  // One lane alone always orders its stores.
  RINGBELL_TARGET RINGBELL_INLINE static void send(G& g, Ll128Line* to, unsigned first_quad, Quad (&quad)[kQuads],
                                                   std::uint64_t flag) {
    if (first_quad + kQuads == kLl128Quads) quad[kQuads - 1].hi = flag;
    if constexpr (G::kLineLanes > 1) {
      g.line_sync();
      if (g.line_together()) {
        M::publish_quad(&to->quad[first_quad], quad[0]);
      } else {
        if (first_quad != kFlagQuad) M::publish_quad(&to->quad[first_quad], quad[0]);
        g.line_sync();
        if (first_quad == kFlagQuad) M::publish_flag_quad(&to->quad[first_quad], quad[0], Edge::kLl128Flag);
      }
    } else {
      for (unsigned q = 0; q < kFlagQuad; ++q) M::publish_quad(&to->quad[q], quad[q]);
      M::publish_flag_quad(&to->quad[kFlagQuad], quad[kFlagQuad], Edge::kLl128Flag);
    }
  }

  /// @return true, to all lanes of the line, when its flag matches. Only what is read after that is whole.
  RINGBELL_TARGET RINGBELL_INLINE static bool read(G& g, const Ll128Line* line, unsigned first_quad, std::uint64_t flag,
                                                   Quad (&arrived)[kQuads]) {
    bool ready = true;
    RINGBELL_UNROLL
    for (unsigned q = 0; q < kQuads; ++q) {
      arrived[q] = read_quad(line, first_quad + q);
      if (first_quad + q == kFlagQuad) ready = arrived[q].hi == flag;
    }
    return g.line_all(ready);
  }

  /// Waits for the line, out of the loops that move lines. The lanes of a line leave together.
  RINGBELL_TARGET static Status wait(const WorkerContext& ctx, G& g, std::uint32_t peer, const Ll128Line* line,
                                     std::uint64_t flag) {
    Quad unused[kQuads];
    return wait_until<M>(
        ctx, g, {WaitFor::kLine, peer, flag, &line->quad[kFlagQuad].hi},
        [&] { return read(g, line, g.line_lane() * kQuads, flag, unused); },
        [&](bool leave) { return !g.line_all(!leave); });
  }

  RINGBELL_TARGET RINGBELL_INLINE static Quad read_quad(const Ll128Line* line, unsigned quad) {
    if constexpr (G::kLineLanes > 1) return M::read_quad(&line->quad[quad]);
    return quad == kFlagQuad ? M::read_flag_quad(&line->quad[quad], Edge::kLl128Flag) : M::read_quad(&line->quad[quad]);
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL128_LINES_HPP_
