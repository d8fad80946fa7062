// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The end of an operation: the header team waits for every peer's header and compares it.
#ifndef RINGBELL_DEVICE_WORKER_HEADER_CHECK_HPP_
#define RINGBELL_DEVICE_WORKER_HEADER_CHECK_HPP_

#include "device/worker/wait.hpp"

namespace ringbell::device {

/// Called by the lanes of the header team. Notes if any peer asks to park after this operation. A difference is found
/// by the wait's own look around, which names both sides.
template <class M, Group G>
RINGBELL_TARGET Status check_headers(const WorkerContext& ctx, G& g) {
  const Operation& op = g.shared().op;
  const std::uint32_t flag = ll_flag(op.index);
  bool any_park = false;
  bool differs = false;
  for (unsigned first = 0; first < kHeaderWords * ctx.world; first += g.team_lanes()) {
    const unsigned i = first + g.team_lane();
    const unsigned peer = i / kHeaderWords;
    const bool mine = i < kHeaderWords * ctx.world && peer != ctx.rank;
    const std::uint64_t* at = &header_line<M>(ctx, op, mine ? peer : ctx.rank)->word[mine ? i % kHeaderWords : 0];
    std::uint64_t value = 0;
    const auto ready = [&] {
      if (mine) value = M::load_relaxed(at);
      return g.team_all(!mine || ll_word_ready(value, flag));
    };
    const auto vote = [&](bool leave) { return !g.team_all(!leave); };
    const Status status = wait_until<M>(ctx, g, {WaitFor::kHeader, mine ? peer : ctx.rank, flag, at}, ready, vote);
    if (status != Status::kOk) return status;
    const auto word = static_cast<std::uint32_t>(value);
    if (mine && i % kHeaderWords == kHeaderPark) any_park = any_park || word != 0;
    if (mine && i % kHeaderWords >= kHeaderFirstCall && i % kHeaderWords < kHeaderPark) {
      differs = differs || word != op.header[i % kHeaderWords];
    }
  }
  any_park = !g.team_all(!any_park);
  // A burst's end yields to a command that comes in time, and its peers would be gone.
  ParkReason& reason = g.shared().park_after;
  if (any_park && g.team_lane() == 0 && (reason == ParkReason::kNone || reason == ParkReason::kBurstEnd)) {
    reason = ParkReason::kPeerLease;
  }
  if (g.team_all(!differs)) return Status::kOk;
  // Another lane saw the difference; this one has not read those words, and may have to look twice.
  std::uint32_t code = 0;
  while ((code = look_around<M>(ctx, g, ctx.rank, 0)) == 0) M::pause(1);
  const Awaited headers{WaitFor::kHeader, ctx.rank, flag, &header_line<M>(ctx, op, ctx.rank)->word[0]};
  record_failure<M>(ctx, g, headers, 0, code);
  return abort_status(code);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_HEADER_CHECK_HPP_
