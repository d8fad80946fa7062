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

inline constexpr std::uint64_t kSlowWaitUs = 1000;  // a wait this long is told in WayRecords::slow_wait
inline constexpr std::uint64_t kHostPollUs = 50;    // the host's abort word crosses PCIe: not more often than this

/// What a wait is for; told when it is slow or fails.
struct Awaited {
  WaitFor what;
  std::uint32_t peer;
  std::uint64_t expected;
  const std::uint64_t* at;
};

template <class M, Group G>
RINGBELL_TARGET void fill_record(const WorkerContext& ctx, G& g, const Awaited& awaited, std::uint64_t since_ns,
                                 WaitRecord* record) {
  const Operation& op = g.shared().op;
  record->seq = op.seq;
  record->expected = awaited.expected;
  record->seen = M::load_relaxed(awaited.at);
  record->since_ns = since_ns;
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

// The slow part of a wait, in pieces: a function's registers come on top of those of every loop that calls it.

/// A peer that has not even sent its header is what the wait is about, whoever is waited for.
template <class M, Group G>
RINGBELL_TARGET void name_absent(const WorkerContext& ctx, G& g, Awaited* awaited) {
  const Operation& op = g.shared().op;
  const unsigned absent = find_absent<M>(ctx, op);
  if (absent == kMaxRanks) return;
  *awaited = {WaitFor::kHeader, absent, ll_flag(op.index), &header_line<M>(ctx, op, absent)->word[0]};
}

/// Tells the host, while the wait goes on, what it is about. Word by word: a record would be kept in registers.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE void publish_slow_wait(const WorkerContext& ctx, G& g, Awaited awaited,
                                                         std::uint64_t since_ns) {
  name_absent<M>(ctx, g, &awaited);
  const Operation& op = g.shared().op;
  auto* words = reinterpret_cast<std::uint64_t*>(&ctx.control->way[ctx.way].slow_wait);
  const auto word = [words](std::size_t offset) { return &words[offset / 8]; };
  M::store_relaxed(word(offsetof(WaitRecord, valid)), 0);
  M::store_relaxed(word(offsetof(WaitRecord, seq)), op.seq);
  M::store_relaxed(word(offsetof(WaitRecord, expected)), awaited.expected);
  M::store_relaxed(word(offsetof(WaitRecord, seen)), M::load_relaxed(awaited.at));
  M::store_relaxed(word(offsetof(WaitRecord, since_ns)), since_ns);
  M::store_relaxed(word(offsetof(WaitRecord, step)), std::uint64_t{op.step} | std::uint64_t{awaited.peer} << 32 |
                                                         static_cast<std::uint64_t>(awaited.what) << 40 |
                                                         std::uint64_t{ctx.rank} << 56);
  M::store_relaxed(word(offsetof(WaitRecord, mine)), header_call(op));
  M::store_relaxed(word(offsetof(WaitRecord, theirs)), header_call(op));
  M::store_relaxed(word(offsetof(WaitRecord, my_count)), op.command.count);
  M::store_relaxed(word(offsetof(WaitRecord, peer_count)), op.command.count);
  M::store_release(word(offsetof(WaitRecord, valid)), op.seq + 1, Edge::kAbort);
  g.shared().told_slow = true;
}
static_assert(offsetof(WaitRecord, step) % 8 == 0 && offsetof(WaitRecord, peer) == offsetof(WaitRecord, step) + 4 &&
              offsetof(WaitRecord, what) == offsetof(WaitRecord, step) + 5 &&
              offsetof(WaitRecord, reporter) == offsetof(WaitRecord, step) + 7);

inline constexpr unsigned kToldByShift = 24;  // above an abort_code: which abort line told it; kNoTeller: none did
inline constexpr unsigned kNoTeller = kMaxRanks * kWays;

/// Who gave up on whom and why, as far as others say it. @return abort_code and who told; 0: nobody did
template <class M>
RINGBELL_TARGET RINGBELL_NOINLINE std::uint32_t find_abort(const WorkerContext& ctx, bool ask_host) {
  RINGBELL_ROLLED
  for (unsigned at = 0; at < kWays * ctx.world; ++at) {
    // First the lines of this way's writers: the other way of a rank that failed only passes on the code.
    const unsigned teller = at < ctx.world ? at * kWays + ctx.way : (at - ctx.world) * kWays + (ctx.way ^ 1);
    const auto* line = reinterpret_cast<const AbortLine*>(ctx.window[ctx.rank] + WindowLayout::abort_offset(0, teller));
    const auto code = static_cast<std::uint32_t>(M::load_acquire(&line->code, Edge::kAbort));
    if (code != 0) return code | teller << kToldByShift;
  }
  if (!ask_host) return 0;
  const auto code = static_cast<std::uint32_t>(M::load_acquire(&ctx.control->control.abort_code, Edge::kAbort));
  return code == 0 ? 0 : code | kNoTeller << kToldByShift;
}

/// Looks at the abort words, the peers' headers and the clock. @return why the wait must end; 0: it goes on
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE std::uint32_t look_around(const WorkerContext& ctx, G& g, std::uint32_t peer,
                                                            std::uint64_t waited_ns) {
  const std::uint32_t told = find_abort<M>(ctx, waited_ns >= kHostPollUs * 1000);
  if (told != 0) return told;
  Status status = Status::kMismatch;
  const unsigned different = find_disagreement<M>(ctx, g.shared().op);
  if (different != kMaxRanks) {
    peer = different;
  } else if (ctx.timeout_ns != 0 && waited_ns > ctx.timeout_ns) {
    status = Status::kTimeout;
  } else {
    return 0;
  }
  return static_cast<std::uint32_t>(abort_code(status, ctx.rank, peer)) | kNoTeller << kToldByShift;
}

/// The first lane of an operation that must end says why.
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE void record_failure(const WorkerContext& ctx, G& g, Awaited awaited,
                                                      std::uint64_t since_ns, std::uint32_t code) {
  if (!g.claim_failure()) return;
  const Operation& op = g.shared().op;
  WaitRecord& record = g.shared().failure;
  const bool timed_out = abort_status(code) == Status::kTimeout && abort_reporter(code) == ctx.rank;
  if (timed_out) name_absent<M>(ctx, g, &awaited);
  fill_record<M>(ctx, g, awaited, since_ns, &record);
  record.status = abort_status(code);
  record.reporter = static_cast<std::uint8_t>(abort_reporter(code));
  if (!timed_out) record.peer = static_cast<std::uint8_t>(abort_peer(code));
  if (record.status != Status::kMismatch) return;
  const unsigned teller = code >> kToldByShift;
  if (teller != kNoTeller) {
    const auto* line = reinterpret_cast<const AbortLine*>(ctx.window[ctx.rank] + WindowLayout::abort_offset(0, teller));
    record.expected = M::load_relaxed(&line->seq);
    record.seen = M::load_relaxed(&line->peer_seq);
    record.my_count = M::load_relaxed(&line->mine);
    record.peer_count = M::load_relaxed(&line->theirs);
    record.mine = M::load_relaxed(&line->my_call);
    record.theirs = M::load_relaxed(&line->peer_call);
  } else if (record.reporter == ctx.rank) {
    const HeaderLine* line = header_line<M>(ctx, op, record.peer);
    record.expected = op.seq;
    record.seen = (M::load_relaxed(&line->word[0]) & 0xffffffffu) | M::load_relaxed(&line->word[1]) << 32;
    record.peer_count = (M::load_relaxed(&line->word[2]) & 0xffffffffu) | M::load_relaxed(&line->word[3]) << 32;
    record.theirs = M::load_relaxed(&line->word[4]) & 0xffffffffu;
  }
}

/// Polls `ready` a while. @return false when it is time to look around
template <class M, class Ready>
RINGBELL_TARGET RINGBELL_INLINE bool poll(Ready ready) {
  RINGBELL_ROLLED
  for (unsigned polls = 1; !ready(); ++polls) {
    M::pause(polls);
    if (polls % M::kSpinsPerCheck == 0) return false;
  }
  return true;
}

inline constexpr std::uint64_t kWaitStatus = 0x7f;  // what look_again returns: a Status, kWaitTold, and above them
inline constexpr std::uint64_t kWaitTold = 0x80;    // the worker clock when the wait began
inline constexpr std::uint64_t kWaitBits = 0xff;

/// A wait has polled long enough to look around: ends it, or tells that it is slow, or lets it go on. A function, and
/// nothing of it in the loops that wait: they are the hot path, and its instructions would lie among theirs.
/// @param wait 0 at first, then what the last call returned @return the wait's state; it is over if its status is not
/// kOk
template <class M, Group G>
RINGBELL_TARGET RINGBELL_NOINLINE std::uint64_t look_again(const WorkerContext& ctx, G& g, Awaited awaited,
                                                           std::uint64_t wait) {
  const std::uint64_t now_ns = M::now_ns();
  const std::uint64_t since_ns = wait == 0 ? now_ns & ~kWaitBits : wait & ~kWaitBits;
  const std::uint32_t code = look_around<M>(ctx, g, awaited.peer, now_ns - since_ns);
  if (code != 0) {
    record_failure<M>(ctx, g, awaited, since_ns, code);
    return since_ns | (wait & kWaitTold) | static_cast<std::uint64_t>(abort_status(code));
  }
  if ((wait & kWaitTold) != 0 || now_ns - since_ns < kSlowWaitUs * 1000) return since_ns | (wait & kWaitTold);
  if (g.lane() == 0 || awaited.what == WaitFor::kHeader) publish_slow_wait<M>(ctx, g, awaited, since_ns);
  return since_ns | kWaitTold;
}

/// Polls `ready` until it is true. `vote` makes the lanes that poll together (they call this together, with equal poll
/// counts) leave together: it maps a lane's "I must leave" to everybody's.
template <class M, Group G, class Ready, class Vote>
RINGBELL_TARGET RINGBELL_INLINE Status wait_until(const WorkerContext& ctx, G& g, const Awaited& awaited, Ready ready,
                                                  Vote vote) {
  std::uint64_t wait = 0;
  while (!poll<M>(ready)) {
    wait = look_again<M>(ctx, g, awaited, wait);
    const auto status = static_cast<Status>(wait & kWaitStatus);
    if (vote(status != Status::kOk)) return status != Status::kOk ? status : Status::kAborted;
  }
  return Status::kOk;
}

template <class M, Group G, class Ready>
RINGBELL_TARGET RINGBELL_INLINE Status wait_until(const WorkerContext& ctx, G& g, const Awaited& awaited, Ready ready) {
  return wait_until<M>(ctx, g, awaited, ready, [](bool leave) { return leave; });
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_WAIT_HPP_
