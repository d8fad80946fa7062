// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One call as a launch of its own, on a stream or as a node of a graph: the operation of the resident worker, without
// queue, completion and park. What it needs from one launch to the next lies in device memory, so that a replay, which
// the host knows nothing of, finds the epochs of now. The end of the launch is its completion.
#ifndef RINGBELL_DEVICE_WORKER_LAUNCHED_HPP_
#define RINGBELL_DEVICE_WORKER_LAUNCHED_HPP_

#include "device/worker/launched_call.hpp"
#include "device/worker/loop.hpp"

namespace ringbell::device {

// An overlap is told this much later than its call has ended: peers may still be about to read the last lines of it,
// and an abort ends what still waits.
inline constexpr std::uint64_t kOverlapTellUs = 100;

/// One lane. Takes the turn. Two at once: which is first, no other rank can know. Who finds the turn taken marks it;
/// the call that runs ends well, finds the mark, tells and breaks the turn, in one piece for all that come or close.
/// That call's waits have the time-out and the abort words, so this one needs none: one that gave up before would leave
/// its stream at an end that nobody has told of.
/// @return kOk, or why the call must not run: kAborted if the communicator has gone, else what broke it
template <class M>
RINGBELL_TARGET Status take_turn(LaunchedState* state) {
  if (M::compare_exchange_acquire(&state->turn, kTurnFree, kTurnTaken, Edge::kTurn)) return Status::kOk;
  if (mutated<M>(Mutant::kTakeAnyTurn)) return Status::kOk;
  for (unsigned polls = 1;; ++polls) {
    const std::uint64_t found = M::load_relaxed(&state->turn);
    if (found == kTurnClosed) return Status::kAborted;
    if ((found & 0xff) == kTurnBroken) return abort_status(found >> kTurnCodeShift);
    if (mutated<M>(Mutant::kNoContest) && found == kTurnTaken) continue;
    const std::uint64_t next = found == kTurnFree ? kTurnTaken : kTurnContested;
    if (found != kTurnContested && M::compare_exchange_acquire(&state->turn, found, next, Edge::kTurn)) {
      if (next == kTurnTaken) return Status::kOk;
    }
    M::pause(polls);
  }
}

/// Lane 0. Tells host and peers why launched calls end here; `failure` is complete.
template <class M, Group G>
RINGBELL_TARGET void tell_launched_failure(const WorkerContext& ctx, G& g) {
  const WaitRecord& failure = g.shared().failure;
  publish_record<M>(failure, &ctx.control->way[kStreamWay].failure);
  raise_abort<M>(ctx, g, abort_code(failure.status, failure.reporter, failure.peer));
}

/// Lane 0. The operation, and whether it may run.
template <class M, Group G>
RINGBELL_TARGET void begin_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  RINGBELL_ROLLED
  for (unsigned i = 0; i < kCommandQuads; ++i) shared.command_quad[i] = call.command[i];
  shared.failure = WaitRecord{};
  shared.told_slow = false;
  shared.laid_ahead = false;
  const Status refused = take_turn<M>(call.state);
  if (refused == Status::kOk) {
    copy_persistent(call.state->persistent, &shared.persistent);
    for (unsigned wire = 0; wire < kWireFormats; ++wire) {
      shared.links[wire] = make_link(ctx, wire);
      shared.credit_seen[wire] = shared.persistent.epochs[wire].send - ctx.layout.slots;  // nothing yet
    }
  }
  shared.persistent.next_seq = call.issue;
  shared.launch_ns = M::now_ns();
  unpack_operation<M>(ctx, g);
  shared.op.header[kHeaderChannels] |= static_cast<std::uint32_t>(call.issue) << 8;
  shared.verdict = refused == Status::kOk ? Verdict::kRun : Verdict::kAbort;
  if (refused == Status::kOk) return;
  shared.alone = false;
  shared.lanes = g.all_lanes();
}

/// A call that failed leaves no number that could be taken for a result: NaN in every float type, all ones in integers.
template <class M, Group G>
RINGBELL_TARGET void fill_output(G& g) {
  const Operation& op = g.shared().op;
  auto* out = static_cast<std::byte*>(op.command.out);
  for (std::uint64_t at = g.lane() * kQuadBytes; at < op.bytes; at += g.lanes() * kQuadBytes) {
    store_pack16<M>(out + at, Quad{~0ull, ~0ull}, valid_bytes(op.bytes, at, kQuadBytes));
  }
}

/// Lane 0. What follows the operation: keep the epochs, or break, and pass on the turn.
template <class M, Group G>
RINGBELL_TARGET void end_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call, Status status) {
  GroupShared& shared = g.shared();
  if (shared.told_slow) M::store_relaxed(&ctx.control->way[kStreamWay].slow_wait.valid, 0);
  if (status == Status::kOk) {
    ++shared.persistent.op_index;
    copy_persistent(shared.persistent, &call.state->persistent);
    if (M::compare_exchange_release(&call.state->turn, kTurnTaken, kTurnFree, Edge::kTurn)) return;
    shared.failure.seq = call.issue;
    shared.failure.status = Status::kInvalidArgument;
    shared.failure.what = WaitFor::kTurn;
    shared.failure.reporter = static_cast<std::uint8_t>(ctx.rank);
    shared.failure.peer = static_cast<std::uint8_t>(ctx.rank);
    const std::uint64_t since_ns = M::now_ns();
    for (unsigned polls = 1; M::now_ns() - since_ns < kOverlapTellUs * 1000; ++polls) M::pause(polls);
  } else if (shared.failure_taken == 0) {
    shared.failure.status = status;  // the first lane that failed wrote why; the others only left with it
  }
  tell_launched_failure<M>(ctx, g);
  const WaitRecord& failure = shared.failure;
  M::store_release(&call.state->turn, broken_turn(abort_code(failure.status, failure.reporter, failure.peer)),
                   Edge::kTurn);
}

/// The body of one launch. All lanes call it; those that the operation does not need return at once.
template <class M, Group G>
RINGBELL_TARGET void run_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  if (g.in_poll_team()) {
    if (g.team_lane() == 0) begin_launched<M>(ctx, g, call);
    g.team_sync();
    if (shared.verdict == Verdict::kRun && shared.op.bytes != 0 && ctx.world > 1) lay_out_first_round(ctx, g);
  }
  g.sync(Edge::kStart);
  if (shared.verdict == Verdict::kAbort) return fill_output<M>(g);
  if (!g.all_here() && !g.in_poll_team() && (g.alone() || !g.in_header_team())) return;
  const Status status = run_operation<M>(ctx, g);
  if (g.lane() == 0) end_launched<M>(ctx, g, call, status);
  if (status != Status::kOk && g.lane() < g.lanes()) fill_output<M>(g);
}

/// One lane, when the communicator goes: no launched call that starts from now on touches a peer. @return true when
/// none runs any more; false if one still did after `limit_ns`
template <class M>
RINGBELL_TARGET bool close_launched(LaunchedState* state, std::uint64_t limit_ns) {
  const std::uint64_t since_ns = M::now_ns();
  for (unsigned polls = 1;; ++polls) {
    const std::uint64_t found = M::load_relaxed(&state->turn);
    const bool runs = (found == kTurnTaken || found == kTurnContested) && !mutated<M>(Mutant::kCloseTaken);
    if (!runs && M::compare_exchange_acquire(&state->turn, found, kTurnClosed, Edge::kTurn)) return true;
    if (M::now_ns() - since_ns > limit_ns) return false;
    M::pause(polls);
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_LAUNCHED_HPP_
