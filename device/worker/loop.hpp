// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The worker: poll the queue, run an operation, complete it, and leave when idle, when the lease is over, when asked,
// or when something broke. One launch of it is one generation.
#ifndef RINGBELL_DEVICE_WORKER_LOOP_HPP_
#define RINGBELL_DEVICE_WORKER_LOOP_HPP_

#include "device/direct/one_shot.hpp"
#include "device/ring/all_reduce.hpp"
#include "device/worker/header_check.hpp"
#include "device/worker/park.hpp"

namespace ringbell::device {

inline constexpr unsigned kPollsPerControl = 16;  // empty polls between two reads of the host's requests

/// Team lane 0. What the host asks for while the queue is empty; kRun means "go on polling".
template <class M, Group G>
RINGBELL_TARGET Verdict idle_look(const WorkerContext& ctx, G& g, std::uint64_t now, std::uint64_t* idle_since) {
  const HostControlLine& host = ctx.control->control;
  if (M::load_acquire(&host.abort_code, Edge::kAbort) != 0) return Verdict::kAbort;
  const std::uint64_t request = M::load_relaxed(&host.request);
  M::store_relaxed(&ctx.control->state.beat, now);
  if ((request & kRequestExit) != 0) return try_park<M>(ctx, g, ParkReason::kExit) ? Verdict::kLeave : Verdict::kRun;
  if ((request & kRequestPark) != 0) return try_park<M>(ctx, g, ParkReason::kRequest) ? Verdict::kLeave : Verdict::kRun;
  if ((request & kRequestHold) != 0) {
    *idle_since = now;
  } else if (now - *idle_since >= ctx.idle_park_ns) {
    if (try_park<M>(ctx, g, ParkReason::kIdle)) return Verdict::kLeave;
    *idle_since = now;
  }
  return Verdict::kRun;
}

/// How many of the group's lanes move the lines of an operation, `lines` in a chunk: whole teams, and either so many
/// that the team that waits for headers stays apart, or all.
/// In one-shot, where lanes do not wait for each other's lines, that team stays apart always.
template <class G>
RINGBELL_TARGET unsigned lanes_to_take(G& g, Algorithm algorithm, Protocol protocol, std::uint32_t lines) {
  const unsigned all = g.all_lanes();
  const unsigned team = g.team_lanes();
  const unsigned wanted = protocol == Protocol::kLL128 ? lines * G::kLineLanes : lines;
  const unsigned whole = (wanted + team - 1) / team * team;
  if (whole + team > all) return algorithm == Algorithm::kOneShot && all > team ? all - team : all;
  return whole == 0 ? team : whole;
}

/// Team lane 0. The operation, from the command, but for its index. An empty one is the floor of every call: it takes
/// what it needs.
template <class M, Group G>
RINGBELL_TARGET void unpack_operation(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  Operation& op = shared.op;
  op.seq = shared.persistent.next_seq;
  shared.failure_taken = 0;
  shared.published_bytes = 0;
  shared.park_after = command_ends_burst(shared.command_quad) ? ParkReason::kBurstEnd : ParkReason::kNone;
  if (command_kind(shared.command_quad) != CommandKind::kAllReduce) {
    op.command.kind = CommandKind::kNop;  // the rest stays: what is laid out ahead is for another call like the last
    op.command.flags = 0;
    shared.lanes = g.team_lanes();
    shared.alone = true;
    return;
  }
  const Command command = command_unpack(shared.command_quad);
  const std::uint64_t bytes = command_bytes(shared.command_quad, command.count);
  shared.laid_ahead = shared.laid_ahead && bytes == op.bytes && command.chunk_bytes == op.command.chunk_bytes &&
                      command.protocol == op.command.protocol && command.algorithm == op.command.algorithm;
  op.command = command;
  op.bytes = bytes;
  op.step = 0;
  write_header(&op);
  shared.lanes = lanes_to_take(g, command.algorithm, command.protocol, command_lines(shared.command_quad));
  shared.alone = shared.lanes == g.team_lanes() && (ctx.world == 1 || g.all_lanes() == g.team_lanes());
}

/// The operation's algorithm; a constant where a kernel is made for one.
template <Algorithm kOnly>
RINGBELL_HD constexpr Algorithm algorithm_of(Algorithm of_command) {
  return kOnly == Algorithm::kAuto ? of_command : kOnly;
}

/// True for an operation whose steps are laid out before it runs. The direct algorithms have none.
template <Algorithm kOnly = Algorithm::kAuto>
RINGBELL_HD inline bool is_laid_out(const WorkerContext& ctx, const Operation& op) {
  return algorithm_of<kOnly>(op.command.algorithm) == Algorithm::kRing && op.bytes != 0 && ctx.world != 1;
}

/// Poll team. The first round of the operation in shared.op, from the slot uses to come.
template <class G>
RINGBELL_TARGET void lay_out_first_round(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  const Operation& op = shared.op;
  lay_out_round(ctx, op, shared.links, 0, shared.persistent.epochs[wire_index(op.command.protocol)], &shared.rounds[0],
                g.team_lane(), g.team_lanes());
}

/// Poll team, nothing to do. Calls repeat: the first round of another one like the last takes 0.4 us to lay out, which
/// nobody waits for now.
template <class G>
RINGBELL_TARGET void lay_out_ahead(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  g.team_sync();  // what lane 0 wrote when it completed the last one
  if (shared.laid_ahead || !is_laid_out(ctx, shared.op)) return;
  lay_out_first_round(ctx, g);
  g.team_sync();
  if (g.team_lane() == 0) shared.laid_ahead = true;
  g.team_sync();
}

/// Poll team. Unpacks the command into the shared operation and lays out its first round, unless it has been.
template <class M, Group G>
RINGBELL_TARGET void begin_operation(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  if (g.team_lane() == 0) {
    unpack_operation<M>(ctx, g);
    shared.op.index = shared.persistent.op_index;
  }
  g.team_sync();
  const bool all_reduce = shared.op.command.kind == CommandKind::kAllReduce;
  if (!all_reduce || shared.laid_ahead || !is_laid_out(ctx, shared.op)) return;
  lay_out_first_round(ctx, g);
}

/// Poll team. Waits for the next command and unpacks it into the shared operation, or passes on the decision to leave.
/// @param verdict lane 0: kLeave if it has parked already
template <class M, Group G>
RINGBELL_TARGET void next_command(const WorkerContext& ctx, G& g, Verdict verdict) {
  GroupShared& shared = g.shared();
  // Lane 0 may still have been completing the last operation: its values count.
  verdict = static_cast<Verdict>(g.team_broadcast(static_cast<std::uint64_t>(verdict)));
  const std::uint64_t seq = g.team_broadcast(shared.persistent.next_seq);
  const CommandSlot& slot = ctx.queue[seq & (ctx.queue_depth - 1)];
  const std::uint32_t flag = command_flag(seq);
  std::uint64_t idle_since = 0;
  for (unsigned polls = 1; verdict == Verdict::kRun; ++polls) {
    // The command's quads are spread over the team: one 64-byte read brings them all.
    Quad quad[G::kTeamQuads];
    bool ready = true;
    RINGBELL_UNROLL
    for (unsigned i = 0; i < G::kTeamQuads; ++i) {
      const unsigned at = g.team_lane() + i * g.team_lanes();
      if (at < kCommandQuads) {
        quad[i] = M::read_command_quad(&slot.quad[at], Edge::kCommand);
        ready = ready && command_quad_ready(quad[i], flag);
      }
    }
    if (g.team_all(ready)) {
      RINGBELL_UNROLL
      for (unsigned i = 0; i < G::kTeamQuads; ++i) {
        const unsigned at = g.team_lane() + i * g.team_lanes();
        if (at < kCommandQuads) shared.command_quad[at] = quad[i];
      }
      break;
    }
    if (polls == 1) lay_out_ahead(ctx, g);
    if (polls % kPollsPerControl == 0) {
      if (g.team_lane() == 0) {
        const std::uint64_t now = M::now_ns();
        if (idle_since == 0) idle_since = now;
        verdict = idle_look<M>(ctx, g, now, &idle_since);
      }
      verdict = static_cast<Verdict>(g.team_broadcast(static_cast<std::uint64_t>(verdict)));
    }
    M::idle_pause(polls);
  }
  if (g.team_lane() == 0) shared.verdict = verdict;
  if (verdict == Verdict::kRun) {
    g.team_sync();
    begin_operation<M>(ctx, g);
  } else if (g.team_lane() == 0) {
    shared.alone = false;  // nobody stays at kOpStart
    shared.lanes = g.all_lanes();
  }
  g.team_sync();
}

/// The lanes that passed kOpStart. Runs the operation; the last barrier is inside.
/// @tparam kOnly the operation's algorithm, where it is known: the others take no registers; kAuto: any
template <class M, Algorithm kOnly = Algorithm::kAuto, Group G>
RINGBELL_TARGET Status run_operation(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  const Operation& op = shared.op;
  Status status = Status::kOk;
  // Not nested: each level of branches that meet again keeps a register through all calls within it.
  const bool all_reduce = op.command.kind == CommandKind::kAllReduce;
  if (all_reduce && ctx.world == 1 && g.lane() < g.lanes()) copy_through<M>(g);
  const bool exchanges = all_reduce && ctx.world != 1;
  // A team of its own sends headers and waits for them, while others move the lines; a team that is alone does both in
  // the algorithm.
  if (exchanges && g.in_header_team() && (!g.alone() || op.bytes == 0)) {
    send_headers<M>(ctx, g);
    status = check_headers<M>(ctx, g);
  }
  const bool moves = exchanges && g.lane() < g.lanes() && op.bytes != 0;
  if constexpr (kOnly != Algorithm::kOneShot) {
    const bool ring = moves && algorithm_of<kOnly>(op.command.algorithm) == Algorithm::kRing;
    const bool is_short = ring && is_ll_short(g);
    if (is_short) status = ll_short_ring<M>(ctx, g);
    if (ring && !is_short) status = ring_all_reduce<M>(ctx, g, status);
  }
  if constexpr (kOnly != Algorithm::kRing) {
    if (moves && algorithm_of<kOnly>(op.command.algorithm) == Algorithm::kOneShot)
      status = one_shot_all_reduce<M>(ctx, g, status);
  }
  if constexpr (mutated<M>(Mutant::kNextBeforeComplete)) return status;
  return g.agree(status, Edge::kOpEnd);
}

/// Lane 0. Tells every peer and the host why this rank gave up.
template <class M, Group G>
RINGBELL_TARGET void raise_abort(const WorkerContext& ctx, G& g, std::uint64_t code) {
  const WaitRecord& failure = g.shared().failure;
  for (unsigned at = 0; at < kWays * ctx.world; ++at) {
    const unsigned peer = at / kWays;
    if (peer == ctx.rank) continue;
    // Calls of the other way wait for this rank, too.
    std::byte* region = ctx.window[peer] - ctx.way * ctx.layout.way_bytes() + at % kWays * ctx.layout.way_bytes();
    auto* line = reinterpret_cast<AbortLine*>(region + WindowLayout::abort_offset(ctx.rank, ctx.way));
    M::store_relaxed(&line->seq, failure.seq);
    M::store_relaxed(&line->peer_seq, failure.seen);
    M::store_relaxed(&line->mine, failure.my_count);
    M::store_relaxed(&line->theirs, failure.peer_count);
    M::store_relaxed(&line->my_call, failure.mine);
    M::store_relaxed(&line->peer_call, failure.theirs);
    M::store_release(&line->code, code, Edge::kAbort);
  }
}

/// Lane 0. Publishes the completion of the operation just run and moves on to the next.
template <class M, Group G>
RINGBELL_TARGET void complete(const WorkerContext& ctx, G& g, Status status) {
  GroupShared& shared = g.shared();
  const std::uint64_t seq = shared.op.seq;
  // Of a failure the host also reads the record, in its own memory: the wider fence. An empty call wrote nothing, and
  // what was before it has completed.
  const bool empty = shared.op.command.kind != CommandKind::kAllReduce;
  const bool this_gpu = (shared.op.command.flags & kFlagGpuScopeComplete) != 0;
  const Readers readers = status != Status::kOk ? Readers::kAll
                          : empty               ? Readers::kNobody
                          : this_gpu            ? Readers::kThisGpu
                                                : Readers::kAll;
  auto* line = reinterpret_cast<Quad*>(&ctx.completions[seq & (ctx.queue_depth - 1)]);
  M::publish_completion(line, Quad{shared.published_bytes, completion_word(seq, status)}, readers, Edge::kCompletion);
  shared.persistent.next_seq = seq + 1;
  if (shared.op.command.kind != CommandKind::kAllReduce) return;
  ++shared.persistent.op_index;
  shared.persistent.direct_epoch = shared.direct_end;
  shared.laid_ahead = false;
}

/// Lane 0, between two operations. @return true if the worker must leave.
template <class M, Group G>
RINGBELL_TARGET bool park_after_operation(const WorkerContext& ctx, G& g) {
  GroupShared& shared = g.shared();
  ParkReason reason = shared.park_after;
  // Who exchanges headers asks for the lease there: all ranks park after the same call.
  const bool alone = ctx.world == 1 || shared.op.command.kind != CommandKind::kAllReduce;
  if (reason == ParkReason::kNone && alone && lease_is_over<M>(ctx, g)) reason = ParkReason::kLease;
  if (reason == ParkReason::kNone) return false;
  const bool held = (M::load_relaxed(&ctx.control->control.request) & kRequestHold) != 0;
  return !held && try_park<M>(ctx, g, reason);
}

/// Lane 0. What follows an operation: report, complete, park. @return kLeave if it has parked.
template <class M, Group G>
RINGBELL_TARGET Verdict end_operation(const WorkerContext& ctx, G& g, Status status) {
  GroupShared& shared = g.shared();
  if (status == Status::kOk) {
    complete<M>(ctx, g, status);
    return park_after_operation<M>(ctx, g) ? Verdict::kLeave : Verdict::kRun;
  }
  // The first lane that failed wrote why; the others only left with it.
  if (shared.failure_taken != 0) status = shared.failure.status;
  publish_record<M>(shared.failure, &ctx.control->way[ctx.way].failure);
  raise_abort<M>(ctx, g, abort_code(status, shared.failure.reporter, shared.failure.peer));
  complete<M>(ctx, g, status);
  leave_broken<M>(ctx, g);
  return Verdict::kLeave;
}

/// The body of one launch. All lanes call it. Returns when the worker has parked or broken. While the poll team is
/// alone in an operation, the other lanes stand at kOpStart.
template <class M, Group G>
RINGBELL_TARGET void run_worker(const WorkerContext& ctx, G& g, std::uint64_t generation) {
  GroupShared& shared = g.shared();
  if (g.in_poll_team()) {
    copy_persistent(*ctx.persistent, &shared.persistent, g.team_lane(), g.team_lanes());
    g.team_sync();
  }
  if (g.lane() == 0) {
    shared.persistent.generation = generation;
    shared.failure = WaitRecord{};
    shared.op.bytes = 0;  // no last operation to lay out ahead for
    shared.laid_ahead = false;
    shared.sends_ahead = false;
    shared.direct_end = shared.persistent.direct_epoch;
    shared.launch_ns = M::now_ns();
    for (unsigned wire = 0; wire < kWireFormats; ++wire) {
      shared.links[wire] = make_link(ctx, wire);
      shared.credit_seen[wire] = shared.persistent.epochs[wire].send - ctx.layout.slots;  // nothing yet
    }
    M::store_relaxed(&ctx.control->state.state, state_word(generation, Residency::kRunning, ParkReason::kNone));
  }
  g.sync(Edge::kStart);
  Verdict verdict = Verdict::kRun;
  if (g.lane() == 0) {
    // An abort that came while the worker was away: its commands are no longer to be touched.
    M::fence_seq_cst(Edge::kPark);
    if (M::load_acquire(&ctx.control->control.abort_code, Edge::kAbort) != 0) verdict = Verdict::kAbort;
  }
  for (;;) {
    if (g.in_poll_team()) next_command<M>(ctx, g, verdict);
    g.sync(Edge::kOpStart);
    if (shared.verdict == Verdict::kLeave) return;
    if (shared.verdict == Verdict::kAbort) {
      if (g.lane() == 0) {
        shared.failure.seq = shared.persistent.next_seq;
        raise_abort<M>(ctx, g, M::load_acquire(&ctx.control->control.abort_code, Edge::kAbort));
        leave_broken<M>(ctx, g);
      }
      return;
    }
    const Status status = run_operation<M>(ctx, g);
    verdict = g.lane() == 0 ? end_operation<M>(ctx, g, status) : Verdict::kRun;  // lane 0's counts
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_LOOP_HPP_
