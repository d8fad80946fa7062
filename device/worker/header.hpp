// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The header line: what each rank says about an operation before it moves data, so that ranks that disagree find out
// and name both sides. A fixed run of LL words, two sets by parity: a rank that stores the header of operation k + 2
// has read every peer's header of k + 1, and those were stored after k was read. No credits, and no cleaning at the
// flag's wrap, because every operation rewrites its whole line.
#ifndef RINGBELL_DEVICE_WORKER_HEADER_HPP_
#define RINGBELL_DEVICE_WORKER_HEADER_HPP_

#include "device/layout/window.hpp"
#include "device/mem/ops.hpp"
#include "device/worker/context.hpp"

namespace ringbell::device {

inline constexpr unsigned kHeaderPark = 9;       // the one word that may differ: "my lease is over"
inline constexpr unsigned kHeaderFirstCall = 2;  // words before it are the call's number: told, not compared
inline constexpr unsigned kHeaderChannels = 8;   // and, of the stream way, 24 bits of the call's number

/// dtype, op, algorithm, protocol in one word, as in the header.
RINGBELL_HD constexpr std::uint32_t header_call(const Operation& op) {
  return static_cast<std::uint32_t>(op.command.dtype) | static_cast<std::uint32_t>(op.command.op) << 8 |
         static_cast<std::uint32_t>(op.command.algorithm) << 16 | static_cast<std::uint32_t>(op.command.protocol) << 24;
}

/// Writes this rank's header but for kHeaderPark.
RINGBELL_HD inline void write_header(Operation* op) {
  const Command& command = op->command;
  op->header[0] = static_cast<std::uint32_t>(op->seq);
  op->header[1] = static_cast<std::uint32_t>(op->seq >> 32);
  op->header[2] = static_cast<std::uint32_t>(command.count);
  op->header[3] = static_cast<std::uint32_t>(command.count >> 32);
  op->header[4] = header_call(*op);
  op->header[5] = command.chunk_bytes;
  op->header[6] = static_cast<std::uint32_t>(command.tag);
  op->header[7] = static_cast<std::uint32_t>(command.tag >> 32);
  op->header[kHeaderChannels] = command.channels;
}

template <class M>
RINGBELL_TARGET const HeaderLine* header_line(const WorkerContext& ctx, const Operation& op, unsigned source) {
  return reinterpret_cast<const HeaderLine*>(ctx.window[ctx.rank] + WindowLayout::header_offset(source, op.index));
}

/// One lane. True if this operation must be the last of the launch.
template <class M, class G>
RINGBELL_TARGET bool lease_is_over(const WorkerContext& ctx, G& g) {
  auto& shared = g.shared();
  const std::uint64_t now = M::now_ns();
  if (now - shared.launch_ns < ctx.lease_ns) return false;
  if ((M::load_relaxed(&ctx.control->control.request) & kRequestHold) == 0) return true;
  shared.launch_ns = now;  // held: a new lease
  return false;
}

/// The team's lanes store this rank's header into every peer's window. The lease is looked at here, and not where
/// everybody waits for the operation.
template <class M, class G>
RINGBELL_TARGET void send_headers(const WorkerContext& ctx, G& g) {
  const Operation& op = g.shared().op;
  if (g.team_lane() == 0) {
    const bool over = lease_is_over<M>(ctx, g);
    g.shared().op.header[kHeaderPark] = over ? 1 : 0;
    if (over) g.shared().park_after = ParkReason::kLease;
  }
  g.team_sync();
  const std::uint64_t flag = static_cast<std::uint64_t>(ll_flag(op.index)) << 32;
  for (unsigned i = g.team_lane(); i < kHeaderWords * ctx.world; i += g.team_lanes()) {
    const unsigned peer = i / kHeaderWords;
    if (peer == ctx.rank) continue;
    auto* line = reinterpret_cast<HeaderLine*>(ctx.window[peer] + WindowLayout::header_offset(ctx.rank, op.index));
    M::store_relaxed(&line->word[i % kHeaderWords], flag | op.header[i % kHeaderWords]);
  }
}

/// The first peer whose header of this operation has not arrived; kMaxRanks if all have. It is not in this call: the
/// one to name, whoever is waited for.
template <class M>
RINGBELL_TARGET RINGBELL_NOINLINE unsigned find_absent(const WorkerContext& ctx, const Operation& op) {
  const std::uint32_t flag = ll_flag(op.index);
  RINGBELL_ROLLED
  for (unsigned peer = 0; peer < ctx.world; ++peer) {
    if (peer == ctx.rank) continue;
    if (!ll_word_ready(M::load_relaxed(&header_line<M>(ctx, op, peer)->word[0]), flag)) return peer;
  }
  return kMaxRanks;
}

/// The first peer whose header has arrived and differs; kMaxRanks if there is none. Does not wait.
template <class M>
RINGBELL_TARGET RINGBELL_NOINLINE unsigned find_disagreement(const WorkerContext& ctx, const Operation& op) {
  const std::uint32_t flag = ll_flag(op.index);
  RINGBELL_ROLLED
  for (unsigned peer = 0; peer < ctx.world; ++peer) {
    if (peer == ctx.rank) continue;
    const HeaderLine* line = header_line<M>(ctx, op, peer);
    bool arrived = true;
    bool differs = false;
    RINGBELL_ROLLED
    for (unsigned i = 0; i < kHeaderWords; ++i) {
      const std::uint64_t value = M::load_relaxed(&line->word[i]);
      arrived = arrived && ll_word_ready(value, flag);
      if (i >= kHeaderFirstCall && i < kHeaderPark) {
        differs = differs || static_cast<std::uint32_t>(value) != op.header[i];
      }
    }
    if (arrived && differs) return peer;
  }
  return kMaxRanks;
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_HEADER_HPP_
