// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Waiting inside an operation. Every wait looks around now and then: at the abort words, at the peers' headers, at the
// clock; it ends with a status in release builds too, and the last thing awaited can be told.
#ifndef RINGBELL_DEVICE_WORKER_WAIT_HPP_
#define RINGBELL_DEVICE_WORKER_WAIT_HPP_

#include "device/group/group.hpp"
#include "device/mem/ops.hpp"
#include "device/worker/header.hpp"

namespace ringbell::device {

inline constexpr std::uint64_t kSlowWaitUs = 1000;  // a wait this long is told in ControlBlock::slow_wait
inline constexpr std::uint64_t kHostPollUs = 50;    // the host's abort word crosses PCIe: not more often than this

/// What a wait is for; told when it is slow or fails.
struct Awaited {
  WaitFor what;
  std::uint32_t peer;
  std::uint64_t expected;
  const std::uint64_t* at;
};

template <class M, Group G>
RINGBELL_TARGET void fill_record(const WorkerContext& ctx, G& g, const Awaited& awaited, std::uint64_t since_us,
                                 WaitRecord* record) {
  const Operation& op = g.shared().op;
  record->seq = op.seq;
  record->expected = awaited.expected;
  record->seen = M::load_relaxed(awaited.at);
  record->since_ns = since_us * 1000;
  record->step = op.step;
  record->peer = static_cast<std::uint8_t>(awaited.peer);
  record->what = awaited.what;
  record->reporter = static_cast<std::uint8_t>(ctx.rank);
  record->my_count = op.command.count;
  record->peer_count = op.command.count;
  record->mine = header_call(op);
  record->theirs = record->mine;
}

/// Copies a record to host memory, word by word, `valid` last.
template <class M>
RINGBELL_TARGET void publish_record(const WaitRecord& record, WaitRecord* to) {
  const auto* from_words = reinterpret_cast<const std::uint64_t*>(&record);
  auto* to_words = reinterpret_cast<std::uint64_t*>(to);
  constexpr unsigned kLast = offsetof(WaitRecord, valid) / 8;
  M::store_relaxed(&to_words[kLast], 0);
  for (unsigned i = 0; i < kLast; ++i) M::store_relaxed(&to_words[i], from_words[i]);
  M::store_release(&to_words[kLast], record.seq + 1, Edge::kAbort);
}

/// The slow part of a wait. Returns since_us << 8 | Status; `since` is 0 on the first look of a wait.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE std::uint64_t look_around(const WorkerContext& ctx, G& g, Awaited awaited,
                                                            std::uint64_t last) {
  const std::uint64_t now_us = M::now_ns() / 1000;
  const std::uint64_t since_us = last == 0 ? now_us : last >> 8;
  const std::uint64_t waited_us = now_us - since_us;
  Status status = Status::kOk;
  std::uint64_t mine = 0;
  std::uint64_t theirs = 0;
  std::uint64_t my_call = 0;
  std::uint64_t peer_call = 0;
  unsigned blamed = awaited.peer;
  unsigned reporter = ctx.rank;

  for (unsigned source = 0; source < ctx.world && status == Status::kOk; ++source) {
    const auto* line = reinterpret_cast<const AbortLine*>(ctx.window[ctx.rank] + WindowLayout::abort_offset(source));
    const std::uint64_t code = M::load_acquire(&line->code, Edge::kAbort);
    if (code == 0) continue;
    status = abort_status(code);
    reporter = abort_reporter(code);
    blamed = abort_peer(code);
    mine = M::load_relaxed(&line->mine);
    theirs = M::load_relaxed(&line->theirs);
    my_call = M::load_relaxed(&line->my_call);
    peer_call = M::load_relaxed(&line->peer_call);
  }
  if (status == Status::kOk && waited_us >= kHostPollUs) {
    const std::uint64_t code = M::load_acquire(&ctx.control->control.abort_code, Edge::kAbort);
    if (code != 0) {
      status = abort_status(code);
      reporter = abort_reporter(code);
      blamed = abort_peer(code);
    }
  }
  HeaderDisagreement disagreement{};
  if (status == Status::kOk && find_disagreement<M>(ctx, g.shared().op, &disagreement)) {
    status = Status::kMismatch;
    blamed = disagreement.peer;
  }
  if (status == Status::kOk && ctx.timeout_ns != 0 && waited_us * 1000 > ctx.timeout_ns) status = Status::kTimeout;
  const bool tells = g.lane() == 0 || awaited.what == WaitFor::kHeader;
  const bool slow = status == Status::kOk && tells && waited_us >= kSlowWaitUs && (last & 0xff) == 0;
  if (slow || (status == Status::kTimeout && reporter == ctx.rank)) {
    const Operation& op = g.shared().op;
    const unsigned absent = find_absent<M>(ctx, op);
    if (absent != ctx.world) {
      awaited = {WaitFor::kHeader, absent, ll_flag(op.index), &header_line<M>(ctx, op, absent)->word[0]};
      blamed = absent;
    }
  }

  if (status != Status::kOk) {
    if (g.claim_failure()) {
      WaitRecord& record = g.shared().failure;
      fill_record<M>(ctx, g, awaited, since_us, &record);
      record.status = status;
      record.peer = static_cast<std::uint8_t>(blamed);
      record.reporter = static_cast<std::uint8_t>(reporter);
      if (disagreement.found) {
        record.peer_count = disagreement.count;
        record.theirs = disagreement.call;
      } else if (status == Status::kMismatch) {
        record.my_count = mine;
        record.peer_count = theirs;
        record.mine = my_call;
        record.theirs = peer_call;
      }
    }
  } else if (slow) {
    WaitRecord record{};
    fill_record<M>(ctx, g, awaited, since_us, &record);
    publish_record<M>(record, &ctx.control->slow_wait);
    return since_us << 8 | 0xff;  // told once
  }
  return since_us << 8 | (status == Status::kOk ? (last & 0xff) : static_cast<std::uint64_t>(status));
}

/// The status in look_around's answer; 0xff marks "told", which is no status.
RINGBELL_HD constexpr Status look_status(std::uint64_t look) {
  return (look & 0xff) == 0xff ? Status::kOk : static_cast<Status>(look & 0xff);
}

/// Polls `ready` until it is true. `vote` makes the lanes that poll together (they call this together, with equal poll
/// counts) leave together: it maps a lane's "I must leave" to everybody's.
template <class M, Group G, class Ready, class Vote>
RINGBELL_TARGET RINGBELL_INLINE Status wait_until(const WorkerContext& ctx, G& g, const Awaited& awaited, Ready ready,
                                                  Vote vote) {
  std::uint64_t look = 0;
  for (unsigned polls = 1; !ready(); ++polls) {
    if (polls % M::kSpinsPerCheck == 0) {
      look = look_around<M>(ctx, g, awaited, look);
      const Status status = look_status(look);
      if (vote(status != Status::kOk)) return status != Status::kOk ? status : Status::kAborted;
    }
    M::pause(polls);
  }
  return Status::kOk;
}

template <class M, Group G, class Ready>
RINGBELL_TARGET RINGBELL_INLINE Status wait_until(const WorkerContext& ctx, G& g, const Awaited& awaited, Ready ready) {
  return wait_until<M>(ctx, g, awaited, ready, [](bool leave) { return leave; });
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_WAIT_HPP_
