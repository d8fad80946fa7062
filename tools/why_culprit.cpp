// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/why_culprit.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "runtime/ringbell.hpp"

namespace ringbell::tools {
namespace {

using session::Awaited;
using session::ProcessState;
using session::RankView;
using session::SessionView;

std::string who(const RankView& rank) {
  return rank.pid == 0 ? fmt::format("rank {}", rank.rank) : fmt::format("rank {} (pid {})", rank.rank, rank.pid);
}

const RankView* rank_at(const SessionView& session, int rank) {
  return rank >= 0 && static_cast<std::size_t>(rank) < session.ranks.size()
             ? &session.ranks[static_cast<std::size_t>(rank)]
             : nullptr;
}

std::string verb(const std::vector<int>& ranks, const char* one, const char* many) {
  return fmt::format("{} {}", ranks_text(ranks), ranks.size() == 1 ? one : many);
}

// ---- broken ---------------------------------------------------------------------------------------------------------

/// Ranks by the call that they made, the largest group first.
std::vector<std::vector<const RankView*>> by_call(const SessionView& session) {
  std::vector<std::vector<const RankView*>> groups;
  for (const RankView& rank : session.ranks) {
    if (!rank.failed_call) continue;
    const auto same = [&](const auto& group) {
      return same_call(group.front()->failed_call->command, rank.failed_call->command);
    };
    const auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      groups.push_back({&rank});
    } else {
      group->push_back(&rank);
    }
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

Culprit mismatch(const SessionView& session, const RankView& told) {
  Culprit culprit{Finding::kBroken, {}, {}, {}};
  const auto groups = by_call(session);
  std::string made;
  for (const auto& group : groups) {
    std::vector<int> ranks;
    for (const RankView* rank : group) ranks.push_back(rank->rank);
    const std::uint64_t tag = group.front()->failed_call->command.tag;
    made += fmt::format("{}{} made it as {}{}", made.empty() ? "" : ", ", ranks_text(ranks),
                        call_text(group.front()->failed_call->command), tag == 0 ? "" : fmt::format(" tag {}", tag));
    if (&group != &groups.front() || (groups.size() > 1 && groups[1].size() == groups[0].size())) {
      culprit.ranks.insert(culprit.ranks.end(), ranks.begin(), ranks.end());
    }
  }
  std::sort(culprit.ranks.begin(), culprit.ranks.end());
  if (groups.size() < 2) {
    // Launched calls are in no queue; or the slots do not show it.
    culprit.ranks = {told.failure.reporter, told.failure.peer};
    culprit.text = fmt::format("{}: {}", ranks_text(culprit.ranks), told.failure.text);
    return culprit;
  }
  culprit.text = fmt::format("{} in call {}: {}; all ranks must make the same call",
                             verb(culprit.ranks, "differs from the others", "differ"), told.failure.seq, made);
  return culprit;
}

std::string state_of_process(const RankView& rank) {
  switch (rank.process) {
    case ProcessState::kGone: return "its process is gone";
    case ProcessState::kStopped: return fmt::format("its process is stopped; kill -CONT {} lets it go on", rank.pid);
    case ProcessState::kTraced:
      return fmt::format("its process is stopped by a debugger, pid {}; continue or detach it there", rank.tracer);
    case ProcessState::kUnknown:
    case ProcessState::kRunning: break;
  }
  return {};
}

Culprit broken(const SessionView& session, const std::vector<const RankView*>& told) {
  // What was found by comparing tells more than who gave up first.
  const auto weight = [](const RankView* rank) {
    constexpr std::array kOrder = {Status::kMismatch, Status::kTimeout, Status::kPeerLost, Status::kSystem};
    return std::find(kOrder.begin(), kOrder.end(), rank->failure.status) - kOrder.begin();
  };
  const RankView& teller = **std::min_element(
      told.begin(), told.end(), [&](const RankView* a, const RankView* b) { return weight(a) < weight(b); });
  const FailureFacts& failure = teller.failure;
  if (failure.status == Status::kMismatch) return mismatch(session, teller);
  const bool about_peer = failure.status == Status::kTimeout || failure.status == Status::kPeerLost;
  Culprit culprit{Finding::kBroken, {about_peer ? failure.peer : failure.reporter}, {}, {}};
  const RankView* const rank = rank_at(session, culprit.ranks[0]);
  const std::string state = rank == nullptr ? std::string() : state_of_process(*rank);
  culprit.text = fmt::format("{}: {}{}{}", rank == nullptr ? ranks_text(culprit.ranks) : who(*rank), failure.text,
                             state.empty() ? "" : "; ", state);
  return culprit;
}

// ---- set-up ---------------------------------------------------------------------------------------------------------

Culprit in_set_up(const SessionView& session) {
  Culprit culprit{Finding::kSomebodyWaits, {}, {}, {}};
  std::vector<int> not_come;
  std::vector<int> not_done;
  std::string states;
  for (const RankView& rank : session.ranks) {
    if (rank.pid == 0) {
      not_come.push_back(rank.rank);
    } else {
      culprit.waiting.push_back(rank.rank);
      const std::string state = state_of_process(rank);
      if (!rank.joined) not_done.push_back(rank.rank);
      if (state.empty()) continue;
      culprit.ranks.push_back(rank.rank);
      states += fmt::format("; {}: {}", who(rank), state);
    }
  }
  if (culprit.ranks.empty()) culprit.ranks = !not_come.empty() ? not_come : not_done;
  culprit.text =
      fmt::format("{} in set-up{}{}", verb(culprit.ranks, "is waited for", "are waited for"),
                  not_come.empty() ? "" : fmt::format("; {}", verb(not_come, "has not come", "have not come")), states);
  return culprit;
}

// ---- running --------------------------------------------------------------------------------------------------------

bool waits(const RankView& rank) { return rank.awaited || rank.stream_awaited; }
const Awaited* awaited_of(const RankView& rank) {
  return rank.awaited ? &*rank.awaited : rank.stream_awaited ? &*rank.stream_awaited : nullptr;
}

/// The host waits for a call that its own worker has not begun.
bool is_held_up_here(const RankView& rank) {
  if (!rank.current || waits(rank)) return false;
  return rank.current->after_stream || rank.worker == device::Residency::kParked;
}

std::string held_up_text(const RankView& rank) {
  if (rank.current->after_stream) {
    return fmt::format("its call {} comes after a stream that has not got there", rank.current->seq);
  }
  if (rank.kept_parked) {
    return fmt::format(
        "it keeps its own worker parked (ParkedScope, park_and_stay) with call {} queued; leave the scope",
        rank.current->seq);
  }
  return fmt::format("its worker has not begun call {}: is its device, or its core, filled by other work?",
                     rank.current->seq);
}

/// Who waits for `rank`, directly or behind others, itself left out.
std::vector<int> behind(const SessionView& session, int rank) {
  std::vector<int> waiting;
  std::vector<int> open{rank};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const RankView& other : session.ranks) {
      const Awaited* const awaited = awaited_of(other);
      if (awaited == nullptr || awaited->peer != at || other.rank == rank) continue;
      if (std::find(waiting.begin(), waiting.end(), other.rank) != waiting.end()) continue;
      waiting.push_back(other.rank);
      open.push_back(other.rank);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

/// The first rank for which it holds; those that are waited for go first.
const RankView* first_that(const SessionView& session, const std::function<bool(const RankView&)>& holds) {
  const RankView* found = nullptr;
  for (const RankView& rank : session.ranks) {
    if (!holds(rank)) continue;
    if (!behind(session, rank.rank).empty()) return &rank;
    if (found == nullptr) found = &rank;
  }
  return found;
}

/// The call in which others are and for which this rank has queued nothing, in words; empty: there is none.
std::string missed_call(const SessionView& session, const RankView& rank) {
  if (rank.current || waits(rank)) return {};
  for (const RankView& other : session.ranks) {
    if (other.rank == rank.rank) continue;
    if (other.awaited && (other.awaited->peer == rank.rank || other.awaited->seq >= rank.completed)) {
      return fmt::format(
          "call {}{}; {}", other.awaited->seq,
          other.current ? fmt::format(" ({})", call_text(other.current->command)) : "",
          rank.completed == 0 ? "it has made none" : fmt::format("its last was call {}", rank.completed - 1));
    }
    if (other.stream_awaited && other.stream_awaited->peer == rank.rank) {
      return fmt::format("launched call {}, or its stream has not come to it", other.stream_awaited->seq);
    }
  }
  return {};
}

std::string place_of(const RankView& rank) {
  return rank.current ? fmt::format("in call {}", rank.current->seq) : fmt::format("before call {}", rank.completed);
}

Culprit awaited_rank(const SessionView& session, const RankView& rank, const std::string& why) {
  Culprit culprit{Finding::kSomebodyWaits, {rank.rank}, behind(session, rank.rank), {}};
  if (culprit.waiting.empty()) {
    for (const RankView& other : session.ranks) {
      if (other.rank != rank.rank && waits(other)) culprit.waiting.push_back(other.rank);
    }
  }
  const std::string waiting = culprit.waiting.empty() ? std::string("its own host waits")
                                                      : verb(culprit.waiting, "waits for it", "wait for it");
  culprit.text = fmt::format("{}: {}; {}", who(rank), why, waiting);
  return culprit;
}

/// Where "waits for" leads to from the first rank that waits, and whether it came back to itself.
const RankView* follow(const SessionView& session, std::vector<const RankView*>* circle) {
  const auto start = std::find_if(session.ranks.begin(), session.ranks.end(), waits);
  std::vector<const RankView*> path;
  for (const RankView* at = &*start;;) {
    const auto seen = std::find(path.begin(), path.end(), at);
    if (seen != path.end()) {
      circle->assign(seen, path.end());
      return *std::min_element(circle->begin(), circle->end(), [](const RankView* a, const RankView* b) {
        const auto progress = [](const RankView* r) { return std::pair(r->completed, awaited_of(*r)->step); };
        return progress(a) < progress(b);
      });
    }
    path.push_back(at);
    const Awaited* const awaited = awaited_of(*at);
    const RankView* const next = awaited == nullptr ? nullptr : rank_at(session, awaited->peer);
    if (next == nullptr) return at;
    at = next;
  }
}

Culprit of_running(const SessionView& session) {
  const bool any = std::any_of(session.ranks.begin(), session.ranks.end(), [](const RankView& rank) {
    return waits(rank) || (rank.host_waits != 0 && is_held_up_here(rank));
  });
  if (!any) return {};
  if (const RankView* rank =
          first_that(session, [](const RankView& r) { return r.process == ProcessState::kGone || r.left; })) {
    return awaited_rank(
        session, *rank,
        fmt::format("{} {}", rank->process == ProcessState::kGone ? "its process is gone" : "it has left the group",
                    place_of(*rank)));
  }
  if (const RankView* rank = first_that(session, [](const RankView& r) {
        return r.process == ProcessState::kStopped || r.process == ProcessState::kTraced;
      })) {
    return awaited_rank(session, *rank, fmt::format("{}, {}", place_of(*rank), state_of_process(*rank)));
  }
  const auto missed = [&](const RankView& rank) { return !missed_call(session, rank).empty(); };
  if (const RankView* rank = first_that(session, missed)) {
    return awaited_rank(session, *rank, fmt::format("it has not made {}", missed_call(session, *rank)));
  }
  if (const RankView* rank = first_that(session, is_held_up_here)) {
    return awaited_rank(session, *rank, held_up_text(*rank));
  }
  std::vector<const RankView*> circle;
  const RankView& end = *follow(session, &circle);
  if (circle.empty()) {
    return awaited_rank(session, end,
                        fmt::format("it is {} and waits for nobody: it computes, or gets no core", place_of(end)));
  }
  std::vector<int> ranks;
  for (const RankView* rank : circle) ranks.push_back(rank->rank);
  std::sort(ranks.begin(), ranks.end());
  return awaited_rank(session, end,
                      fmt::format("{} wait for each other, this one is furthest behind, {} step {}: something that was "
                                  "sent did not arrive",
                                  ranks_text(ranks), place_of(end), awaited_of(end)->step));
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return text;
}

std::string call_text(const device::Command& c) {
  if (c.kind == device::CommandKind::kNop) return "nop";
  return fmt::format("{} {} count {} ({} {})", dtype_name(c.dtype), reduce_op_name(c.op), c.count,
                     algorithm_name(c.algorithm), protocol_name(c.protocol));
}

bool same_call(const device::Command& a, const device::Command& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.count == b.count && a.tag == b.tag &&
         a.algorithm == b.algorithm && a.protocol == b.protocol && a.channels == b.channels;
}

Culprit find_culprit(const SessionView& session) {
  std::vector<const RankView*> told;
  bool complete = true;
  for (const RankView& rank : session.ranks) {
    if (rank.failure.status != Status::kOk) told.push_back(&rank);
    complete = complete && rank.joined;
  }
  Culprit culprit = !told.empty() ? broken(session, told) : !complete ? in_set_up(session) : of_running(session);
  culprit.text = culprit.finding == Finding::kNobodyWaits ? "nobody waits" : fmt::format("culprit: {}", culprit.text);
  return culprit;
}

}  // namespace ringbell::tools
