// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/why_text.hpp"

#include <fmt/format.h>

#include "runtime/build_info.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell::tools {
namespace {

using device::ParkReason;
using device::Residency;
using session::Awaited;
using session::ProcessState;
using session::RankView;

std::string process_text(const RankView& rank) {
  std::string text = fmt::format("pid {} {}", rank.pid, process_state_name(rank.process));
  if (rank.tracer != 0)
    text += fmt::format(" by pid {}{}", rank.tracer, rank.process == ProcessState::kTraced ? "" : " (traced)");
  return text;
}

std::string awaited_text(const Awaited& awaited) {
  return fmt::format("step {}, waits{} for the {} of rank {}", awaited.step,
                     awaited.waited_ns == 0 ? "" : fmt::format(" {}", duration_text(awaited.waited_ns)), awaited.what,
                     awaited.peer);
}

std::string call_state(const RankView& rank) {
  std::string text = rank.completed == 0 ? "completed none" : fmt::format("completed call {}", rank.completed - 1);
  if (rank.current) {
    text += fmt::format(", in call {} {}{}", rank.current->seq, call_text(rank.current->command),
                        rank.current->after_stream ? " after a stream" : "");
    if (rank.awaited) text += fmt::format(" {}", awaited_text(*rank.awaited));
    if (rank.queued > 1) text += fmt::format(", {} more queued", rank.queued - 1);
  } else {
    text += ", no call queued";
  }
  if (rank.stream_awaited) {
    text += fmt::format("; launched call {} {}", rank.stream_awaited->seq, awaited_text(*rank.stream_awaited));
  }
  return text;
}

std::string host_text(const RankView& rank) {
  if (rank.host_waits == 0) return "host not in wait";
  return fmt::format("host in wait for call {} since {}{}", rank.host_wait_seq, duration_text(rank.host_waited_ns),
                     rank.host_waits == 1 ? "" : fmt::format(" ({} threads)", rank.host_waits));
}

std::string rank_text(const RankView& rank, bool is_dump) {
  std::string text = fmt::format("rank {}: ", rank.rank);
  if (rank.pid == 0) return text + (is_dump ? "no dump given" : "no process has come");
  text += is_dump ? fmt::format("dump of pid {}", rank.pid) : process_text(rank);
  if (!rank.joined) return text + (rank.left ? ", set-up failed" : ", in set-up");
  if (rank.left) text += ", left the group";
  text += fmt::format("; {}", call_state(rank));
  if (!is_dump) text += fmt::format("; {}; worker {}", host_text(rank), worker_text(rank));
  if (rank.failure.status != Status::kOk) {
    text += fmt::format("; broken ({}): {}", status_name(rank.failure.status), rank.failure.text);
  }
  return text;
}

}  // namespace

std::string duration_text(std::uint64_t nanos) {
  const double ms = static_cast<double>(nanos) * 1e-6;
  return ms < 1000 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} s", ms * 1e-3);
}

std::string worker_text(const RankView& rank) {
  const char* const held = rank.held ? ", held" : "";
  switch (rank.worker) {
    case Residency::kRunning: return fmt::format("running{}", held);
    case Residency::kParking: return "about to park";
    case Residency::kBroken: return "ended";
    case Residency::kParked: break;
  }
  switch (rank.park_reason) {
    case ParkReason::kNone: return "never ran";
    case ParkReason::kIdle: return "parked (idle)";
    case ParkReason::kLease: return "parked (its lease was over)";
    case ParkReason::kPeerLease: return "parked (a peer's lease was over)";
    case ParkReason::kRequest: return rank.kept_parked ? "kept parked" : "parked (asked to)";
    case ParkReason::kBurstEnd: return "parked (last of a burst)";
    case ParkReason::kExit: return "gone for good";
  }
  return "parked";
}

std::string session_text(const session::SessionView& session) {
  const bool is_dump = session.taken_ns == 0;
  std::string text = fmt::format("session {}: ", session.name);
  if (!session.unreadable.empty()) return fmt::format("{}\n", session.unreadable);
  if (session.ranks.empty()) return text + "being made\n";
  text += fmt::format("{} ranks{}{}{}\n", session.ranks.size(),
                      is_dump || session.version.empty() ? ""
                      : session.cuda                     ? ", cuda"
                                                         : ", cpu",
                      session.version.empty() ? "" : fmt::format(", ringbell {}", session.version),
                      session.version.empty() || session.version == build_info().version
                          ? ""
                          : fmt::format(" (this program is {})", build_info().version));
  for (const RankView& rank : session.ranks) text += fmt::format("{}\n", rank_text(rank, is_dump));
  return text;
}

}  // namespace ringbell::tools
