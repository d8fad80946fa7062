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

/// This rank's own first chunk, which waits for nobody and is known without the epochs. LL only. @return no bytes:
/// there is none, or it is not sent ahead
RINGBELL_HD inline ByteRange first_chunk(const WorkerContext& ctx, const LaunchedCall& call) {
  const Command command = command_unpack(call.command);
  if (command.protocol != Protocol::kLL || ctx.world == 1) return {0, 0};
  return chunk_range(command_bytes(call.command, command.count), 0, command.chunk_bytes,
                     ring_chunk(ctx.ring_index, 0, ctx.world));
}

/// The line at byte `at` of that chunk.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE std::uint64_t load_first(const LaunchedCall& call, ByteRange first, std::uint64_t at) {
  const auto* const in = static_cast<const std::byte*>(command_unpack(call.command).in);
  return load_pack8<M>(in + first.begin + at, valid_bytes(first.bytes, at, kLlPayloadBytes));
}

/// Lane 0 of the header team. Asks whether this launch may run: if not, the windows may be gone. Then reads what the
/// last call kept, frees the slot that it read at its very end, where a store to a peer would have been waited for, and
/// looks which slots the next rank has freed.
template <class M, Group G>
RINGBELL_TARGET void ask_for_turn(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  shared.sends_ahead = false;
  shared.failure = WaitRecord{};
  shared.refused = take_turn<M>(call.state);
  if (shared.refused != Status::kOk) return;
  const unsigned wire = wire_index(command_protocol(call.command));
  // All loads before the first use: one trip to memory.
  const LaunchedState& state = *call.state;
  const std::uint64_t index = M::load_relaxed(&state.op_index);
  Epochs epochs[kWireFormats];
  RINGBELL_UNROLL
  for (unsigned i = 0; i < kWireFormats; ++i) {
    epochs[i] = {M::load_relaxed(&state.epochs[i].send), M::load_relaxed(&state.epochs[i].recv)};
  }
  const auto* line = reinterpret_cast<const CreditLine*>(ctx.window[ctx.rank] + ctx.layout.credit_offset(0, wire));
  const std::uint64_t consumed = ctx.world > 1 ? M::load_acquire(&line->consumed, Edge::kCredit) : 0;
  Persistent& persistent = shared.persistent;
  persistent.op_index = index;
  RINGBELL_UNROLL
  for (unsigned i = 0; i < kWireFormats; ++i) persistent.epochs[i] = epochs[i];
  if (ctx.world == 1) return;
  const Epochs now = persistent.epochs[wire];
  store_credit<M>(ctx, wire, now.recv - 1, false);
  const std::uint64_t slots = ctx.layout.slots;
  // What the last call has seen may not have come to this lane yet.
  shared.credit_seen[wire] = now.send - consumed < slots ? consumed : now.send - slots;
  shared.sends_ahead = first_chunk(ctx, call).bytes != 0 && has_room(now.send, shared.credit_seen[wire], slots);
}

/// Poll team. The operation of this launch but for its index.
template <class M, Group G>
RINGBELL_TARGET void unpack_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  for (unsigned i = g.team_lane(); i < kCommandQuads; i += g.team_lanes()) shared.command_quad[i] = call.command[i];
  g.team_sync();
  if (g.team_lane() != 0) return;
  shared.told_slow = false;
  shared.laid_ahead = false;
  shared.launch_ns = 0;  // no lease
  shared.persistent.next_seq = call.issue;
  unpack_operation<M>(ctx, g);
  shared.op.header[kHeaderChannels] |= static_cast<std::uint32_t>(call.issue) << 8;
}

/// Poll team, once the epochs are known: index, link and first round of the operation; and whether what it will leave
/// is known already: the header team must not look for itself, because a later round takes the first one's place.
template <class G>
RINGBELL_TARGET void lay_out_launched(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  if (g.team_lane() == 0) {
    shared.op.index = shared.persistent.op_index;
    shared.kept_early = ctx.world > 1 && shared.op.bytes == 0;
  }
  if (shared.op.bytes == 0 || ctx.world == 1) return;
  const unsigned wire = wire_index(shared.op.command.protocol);
  if (g.team_lane() == 0) shared.links[wire] = make_link(ctx, wire);
  g.team_sync();
  lay_out_first_round(ctx, g);
  g.team_sync();
  if (g.team_lane() != 0) return;
  Round& round = shared.rounds[0];
  shared.kept_early = round.last;
  if (!shared.sends_ahead) return;
  round.first = 1;
  shared.op.step = 1;
  shared.published_bytes = round.step[0].bytes;
  // A team that is alone looks at the headers after the last step that passes anything on: that one is not done again.
  if (round.step[0].last_out) round.step[1].last_out = true;
}

/// The lanes that move lines. `pack` is this lane's first line, loaded while the turn was asked for.
template <class M, Group G>
RINGBELL_TARGET void send_ahead(const WorkerContext& ctx, G& g, const LaunchedCall& call, ByteRange first,
                                std::uint64_t pack) {
  constexpr unsigned kWire = wire_index(Protocol::kLL);
  const std::uint64_t epoch = g.shared().persistent.epochs[kWire].send;
  auto* const to = reinterpret_cast<LlLine*>(ctx.window[ctx.ring_next] + ctx.layout.slot(kWire, 0, epoch));
  const std::uint32_t flag = ll_flag(epoch);
  const std::uint64_t lines = ceil_divide(first.bytes, kLlPayloadBytes);
  for (std::uint64_t at = g.lane(); at < lines; at += g.lanes()) {
    if (at != g.lane()) pack = load_first<M>(call, first, at * kLlPayloadBytes);
    M::publish_ll(&to[at], ll_pack(pack, flag));
  }
}

/// One lane that has the turn. Leaves the next call its epochs: those of the operation's wire format, and the others as
/// they were.
template <class M, Group G>
RINGBELL_TARGET void keep_epochs(G& g, LaunchedState* state, const Epochs& now) {
  const GroupShared& shared = g.shared();
  Epochs& kept = state->epochs[wire_index(shared.op.command.protocol)];
  M::store_relaxed(&state->op_index, shared.persistent.op_index + 1);
  M::store_relaxed(&kept.send, now.send);
  M::store_relaxed(&kept.recv, now.recv);
}

/// Lane 0 of the header team, once the round is laid out: a call of one round knows before it runs what it will leave.
/// If it fails, no call follows.
template <class M, Group G>
RINGBELL_TARGET void keep_early(G& g, LaunchedState* state) {
  GroupShared& shared = g.shared();
  if (!shared.kept_early) return;
  const unsigned wire = wire_index(shared.op.command.protocol);
  keep_epochs<M>(g, state, shared.op.bytes != 0 ? shared.rounds[0].epochs : shared.persistent.epochs[wire]);
}

/// A call that failed leaves no number that could be taken for a result: NaN in every float type, all ones in integers.
/// @param lanes that call this: the first ones
template <class M, Group G>
RINGBELL_TARGET void fill_output(G& g, unsigned lanes) {
  const Operation& op = g.shared().op;
  auto* out = static_cast<std::byte*>(op.command.out);
  for (std::uint64_t at = g.lane() * kQuadBytes; at < op.bytes; at += std::uint64_t{lanes} * kQuadBytes) {
    store_pack16<M>(out + at, Quad{~0ull, ~0ull}, valid_bytes(op.bytes, at, kQuadBytes));
  }
}

/// Lane 0. What follows the operation: keep the epochs, or break, and pass on the turn.
template <class M, Group G>
RINGBELL_TARGET void end_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call, Status status) {
  GroupShared& shared = g.shared();
  if (shared.told_slow) M::store_relaxed(&ctx.control->way[kStreamWay].slow_wait.valid, 0);
  if (status == Status::kOk) {
    if (!shared.kept_early) {
      keep_epochs<M>(g, call.state, shared.persistent.epochs[wire_index(shared.op.command.protocol)]);
    }
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
  if (g.in_header_team() && g.team_lane() == 0) ask_for_turn<M>(ctx, g, call);
  if (g.in_poll_team()) unpack_launched<M>(ctx, g, call);
  const ByteRange first = first_chunk(ctx, call);
  const std::uint64_t at = g.lane() * kLlPayloadBytes;
  const std::uint64_t pack = at < first.bytes ? load_first<M>(call, first, at) : 0;
  g.sync(Edge::kStart);
  if (shared.refused != Status::kOk) return fill_output<M>(g, g.all_lanes());
  if (shared.sends_ahead && g.lane() < g.lanes()) send_ahead<M>(ctx, g, call, first, pack);
  if (g.in_poll_team()) lay_out_launched(ctx, g);
  g.sync(Edge::kStart);
  if (g.in_header_team() && g.team_lane() == 0) keep_early<M>(g, call.state);
  if (!g.all_here() && !g.in_poll_team() && (g.alone() || !g.in_header_team())) return;
  const Status status = run_operation<M>(ctx, g);
  if (g.lane() == 0) end_launched<M>(ctx, g, call, status);
  if (status != Status::kOk && g.lane() < g.lanes()) fill_output<M>(g, g.lanes());
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
