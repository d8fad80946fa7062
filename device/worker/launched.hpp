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
template <Algorithm kOnly>
RINGBELL_HD inline ByteRange first_chunk(const WorkerContext& ctx, const LaunchedCall& call) {
  const Command command = command_unpack(call.command);
  if (command.protocol != Protocol::kLL || ctx.world == 1) return {0, 0};
  const bool ring = algorithm_of<kOnly>(command.algorithm) == Algorithm::kRing;
  const std::uint32_t chunk = ring ? ring_chunk(ctx.ring_index, 0, ctx.world) : 0;
  return chunk_range(command_bytes(call.command, command.count), 0, command.chunk_bytes, chunk);
}

/// The line at byte `at` of that chunk.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE std::uint64_t load_first(const LaunchedCall& call, ByteRange first, std::uint64_t at) {
  const auto* const in = static_cast<const std::byte*>(command_unpack(call.command).in);
  return load_pack8<M>(in + first.begin + at, valid_bytes(first.bytes, at, kLlPayloadBytes));
}

/// Lane 0 of the header team, which has the turn. Reads what the last ring call of this wire format kept, frees the
/// slot that it read at its very end, where a store to a peer would have been waited for, and looks which slots the
/// next rank has freed.
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void take_ring_epochs(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  const unsigned wire = wire_index(command_protocol(call.command));
  // All loads before the first use: one trip to memory.
  const Epochs& kept = call.state->epochs[wire];
  const std::uint64_t index = M::load_relaxed(&call.state->op_index);
  const Epochs now{M::load_relaxed(&kept.send), M::load_relaxed(&kept.recv)};
  const auto* line = reinterpret_cast<const CreditLine*>(ctx.window[ctx.rank] + ctx.layout.credit_offset(0, wire));
  const std::uint64_t consumed = M::load_acquire(&line->consumed, Edge::kCredit);
  shared.op.index = index;
  shared.persistent.epochs[wire] = now;
  store_credit<M>(ctx, wire, now.recv - 1, false);
  const std::uint64_t slots = ctx.layout.slots;
  // What the last call has seen may not have come to this lane yet.
  shared.credit_seen[wire] = now.send - consumed < slots ? consumed : now.send - slots;
  shared.sends_ahead = first_chunk<kOnly>(ctx, call).bytes != 0 && has_room(now.send, shared.credit_seen[wire], slots);
}

/// Lane 0 of the header team. Asks whether this launch may run: if not, the windows may be gone. Then reads what the
/// last call kept.
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void ask_for_turn(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  shared.sends_ahead = false;
  shared.failure = WaitRecord{};
  shared.refused = take_turn<M>(call.state);
  if (shared.refused != Status::kOk) return;
  if (ctx.world != 1 && algorithm_of<kOnly>(command_algorithm(call.command)) == Algorithm::kRing) {
    return take_ring_epochs<M, kOnly>(ctx, g, call);
  }
  const std::uint64_t index = M::load_relaxed(&call.state->op_index);
  const std::uint64_t epoch = M::load_relaxed(&call.state->direct_epoch);
  shared.op.index = index;
  shared.persistent.direct_epoch = epoch;
  shared.sends_ahead = first_chunk<kOnly>(ctx, call).bytes != 0;
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

/// Poll team, once the epochs are known: link and first round of a ring; and whether what it will leave is known
/// already: the header team must not look for itself, because a later round takes the first one's place.
template <Algorithm kOnly, class G>
RINGBELL_TARGET void lay_out_launched(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  if (!is_laid_out<kOnly>(ctx, shared.op)) {
    if (g.team_lane() == 0) shared.kept_early = true;
    return;
  }
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
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void send_ahead(const WorkerContext& ctx, G& g, const LaunchedCall& call, ByteRange first,
                                std::uint64_t pack) {
  constexpr unsigned kWire = wire_index(Protocol::kLL);
  if (algorithm_of<kOnly>(g.shared().op.command.algorithm) == Algorithm::kOneShot) {
    const std::uint64_t epoch = g.shared().persistent.direct_epoch;
    const std::uint32_t mine = direct_slots(ctx, kWire, epoch).mine;
    const std::uint32_t flag = ll_flag(epoch);
    const auto lines = static_cast<std::uint32_t>(ceil_divide(first.bytes, kLlPayloadBytes));
    for (std::uint32_t of_team = g.lane() - g.team_lane(); of_team < lines; of_team += g.lanes()) {  // see OneShotLl
      const std::uint32_t line = of_team + g.team_lane();
      if (line != g.lane() && line < lines) pack = load_first<M>(call, first, line * kLlPayloadBytes);
      if (line < lines) send_ll_line<M>(ctx, mine + line * std::uint32_t{sizeof(LlLine)}, ll_pack(pack, flag));
    }
    return;
  }
  const std::uint64_t epoch = g.shared().persistent.epochs[kWire].send;
  auto* const to = reinterpret_cast<LlLine*>(ctx.window[ctx.ring_next] + ctx.layout.slot(kWire, 0, epoch));
  const std::uint32_t flag = ll_flag(epoch);
  const std::uint64_t lines = ceil_divide(first.bytes, kLlPayloadBytes);
  for (std::uint64_t at = g.lane(); at < lines; at += g.lanes()) {
    if (at != g.lane()) pack = load_first<M>(call, first, at * kLlPayloadBytes);
    M::publish_ll(&to[at], ll_pack(pack, flag));
  }
}

/// One lane that has the turn. Leaves the next call its epochs: those that the operation uses up, and the others as
/// they were. @param ring after a ring operation
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void keep_epochs(const WorkerContext& ctx, G& g, LaunchedState* state, const Epochs& ring) {
  const Operation& op = g.shared().op;
  M::store_relaxed(&state->op_index, op.index + 1);
  if (is_laid_out<kOnly>(ctx, op)) {
    Epochs& kept = state->epochs[wire_index(op.command.protocol)];
    M::store_relaxed(&kept.send, ring.send);
    M::store_relaxed(&kept.recv, ring.recv);
  } else if (op.bytes != 0) {
    M::store_relaxed(&state->direct_epoch,
                     g.shared().persistent.direct_epoch + ceil_divide(op.bytes, op.command.chunk_bytes));
  }
}

/// Lane 0 of the header team, once a ring's round is laid out: every call but a ring of several rounds knows before it
/// runs what it will leave. If it fails, no call follows.
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void keep_early(const WorkerContext& ctx, G& g, LaunchedState* state) {
  if (g.shared().kept_early) keep_epochs<M, kOnly>(ctx, g, state, g.shared().rounds[0].epochs);
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
template <class M, Algorithm kOnly, Group G>
RINGBELL_TARGET void end_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call, Status status) {
  GroupShared& shared = g.shared();
  if (shared.told_slow) M::store_relaxed(&ctx.control->way[kStreamWay].slow_wait.valid, 0);
  if (status == Status::kOk) {
    if (!shared.kept_early) {
      keep_epochs<M, kOnly>(ctx, g, call.state, shared.persistent.epochs[wire_index(shared.op.command.protocol)]);
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
/// @tparam kOnly as run_operation's
template <class M, Algorithm kOnly = Algorithm::kAuto, Group G>
RINGBELL_TARGET void run_launched(const WorkerContext& ctx, G& g, const LaunchedCall& call) {
  GroupShared& shared = g.shared();
  if (g.in_header_team() && g.team_lane() == 0) ask_for_turn<M, kOnly>(ctx, g, call);
  if (g.in_poll_team()) unpack_launched<M>(ctx, g, call);
  const ByteRange first = first_chunk<kOnly>(ctx, call);
  const std::uint64_t at = g.lane() * kLlPayloadBytes;
  const std::uint64_t pack = at < first.bytes ? load_first<M>(call, first, at) : 0;
  g.sync(Edge::kStart);
  if (shared.refused != Status::kOk) return fill_output<M>(g, g.all_lanes());
  if (shared.sends_ahead && g.lane() < g.lanes()) send_ahead<M, kOnly>(ctx, g, call, first, pack);
  if (g.in_poll_team()) lay_out_launched<kOnly>(ctx, g);
  g.sync(Edge::kStart);
  if (g.in_header_team() && g.team_lane() == 0) keep_early<M, kOnly>(ctx, g, call.state);
  if (!g.all_here() && !g.in_poll_team() && (g.alone() || !g.in_header_team())) return;
  const Status status = run_operation<M, kOnly>(ctx, g);
  if (g.lane() == 0) end_launched<M, kOnly>(ctx, g, call, status);
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
