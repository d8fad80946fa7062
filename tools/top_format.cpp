// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/top_format.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/command_json.hpp"
#include "runtime/ringbell.hpp"
#include "tools/why_culprit.hpp"
#include "tools/why_text.hpp"

namespace ringbell::tools {
namespace {

using Json = nlohmann::ordered_json;
using session::RankView;
using session::SessionView;

double seconds(std::uint64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

/// Completed calls a second since the last look.
std::optional<double> rate(const std::vector<SessionView>& before, const SessionView& session, const RankView& rank) {
  const auto was = std::find_if(before.begin(), before.end(), [&](const auto& s) { return s.name == session.name; });
  if (was == before.end() || was->taken_ns >= session.taken_ns) return std::nullopt;
  const auto at = static_cast<std::size_t>(rank.rank);
  if (at >= was->ranks.size() || was->ranks[at].pid != rank.pid || was->ranks[at].completed > rank.completed) {
    return std::nullopt;
  }
  return static_cast<double>(rank.completed - was->ranks[at].completed) / seconds(session.taken_ns - was->taken_ns);
}

const char* worker_word(const RankView& rank) {
  switch (rank.worker) {
    case device::Residency::kParked: return "parked";
    case device::Residency::kRunning: return "running";
    case device::Residency::kParking: return "parking";
    case device::Residency::kBroken: return "ended";
  }
  return "unknown";
}

std::string waiting_text(const RankView& rank) {
  const auto& awaited = rank.awaited ? rank.awaited : rank.stream_awaited;
  if (rank.failure.status != Status::kOk) return fmt::format("broken: {}", status_name(rank.failure.status));
  if (!awaited) return "-";
  return fmt::format("{} of rank {}{}", awaited->what, awaited->peer,
                     awaited->waited_ns == 0 ? "" : fmt::format(", {}", duration_text(awaited->waited_ns)));
}

Json awaited_json(const std::optional<session::Awaited>& awaited) {
  if (!awaited) return nullptr;
  return {{"seq", awaited->seq},
          {"step", awaited->step},
          {"what", awaited->what},
          {"rank", awaited->peer},
          {"waited_s", awaited->waited_ns == 0 ? Json(nullptr) : Json(seconds(awaited->waited_ns))}};
}

Json call_json(const std::optional<session::Call>& call) {
  if (!call) return nullptr;
  Json json = command_json(call->seq, call->command);
  json["after_stream"] = call->after_stream;
  return json;
}

Json rank_json(const std::vector<SessionView>& before, const SessionView& session, const RankView& rank) {
  const std::optional<double> calls = rate(before, session, rank);
  return {{"rank", rank.rank},
          {"pid", rank.pid},
          {"process", process_state_name(rank.process)},
          {"joined", rank.joined},
          {"left", rank.left},
          {"completed", rank.completed},
          {"calls_per_s", calls ? Json(std::round(*calls * 10) / 10) : Json(nullptr)},
          {"queued", rank.queued},
          {"current", call_json(rank.current)},
          {"awaited", awaited_json(rank.awaited)},
          {"stream_awaited", awaited_json(rank.stream_awaited)},
          {"worker", worker_word(rank)},
          {"launches", rank.launches},
          {"held", rank.held},
          {"kept_parked", rank.kept_parked},
          {"host_waits", rank.host_waits},
          {"host_waited_s", rank.host_waits == 0 ? Json(nullptr) : Json(seconds(rank.host_waited_ns))},
          {"heartbeat_age_s", seconds(rank.heartbeat_age_ns)},
          {"status", status_name(rank.failure.status)},
          {"error", rank.failure.status == Status::kOk ? Json(nullptr) : Json(rank.failure.text)}};
}

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::function<double(const RankView&)> value;
};

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = {
      {"completed_calls_total", "counter", "Host-issued calls that ended well.",
       [](const RankView& r) { return static_cast<double>(r.completed); }},
      {"queued_calls", "gauge", "Calls in the queue that have not completed.",
       [](const RankView& r) { return static_cast<double>(r.queued); }},
      {"worker_launches_total", "counter", "Launches of the worker.",
       [](const RankView& r) { return static_cast<double>(r.launches); }},
      {"worker_running", "gauge", "1 while the worker is there.",
       [](const RankView& r) { return r.worker == device::Residency::kRunning ? 1.0 : 0.0; }},
      {"waiting_seconds", "gauge", "How long the worker has waited for a peer; 0 below a millisecond.",
       [](const RankView& r) { return r.awaited ? seconds(r.awaited->waited_ns) : 0; }},
      {"awaited_rank", "gauge", "The peer that the worker waits for; -1: none.",
       [](const RankView& r) { return r.awaited ? static_cast<double>(r.awaited->peer) : -1.0; }},
      {"host_waits", "gauge", "Threads of the application inside wait.",
       [](const RankView& r) { return static_cast<double>(r.host_waits); }},
      {"heartbeat_age_seconds", "gauge", "Age of the last sign of life of the rank's service thread.",
       [](const RankView& r) { return seconds(r.heartbeat_age_ns); }},
      {"process_runs", "gauge", "0 when the process is stopped, traced or gone.",
       [](const RankView& r) {
         return r.process == session::ProcessState::kRunning || r.process == session::ProcessState::kUnknown ? 1.0
                                                                                                             : 0.0;
       }},
      {"broken", "gauge", "1 after an error that ends the communicator.",
       [](const RankView& r) { return r.failure.status == Status::kOk ? 0.0 : 1.0; }},
  };
  return all;
}

}  // namespace

std::string top_table(const std::vector<SessionView>& before, const std::vector<SessionView>& now) {
  std::string text;
  for (const SessionView& session : now) {
    if (!session.unreadable.empty()) {
      text += fmt::format("{}\n", session.unreadable);
      continue;
    }
    text += fmt::format("session {}{}\n", session.name, session.ranks.empty() ? "" : session.cuda ? ", cuda" : ", cpu");
    text += fmt::format("{:>4} {:>8} {:<9} {:<8} {:>12} {:>10} {:>6} {:>9} {:>9} {}\n", "rank", "pid", "process",
                        "worker", "completed", "calls/s", "queued", "launches", "in wait", "waits for");
    for (const RankView& rank : session.ranks) {
      const std::optional<double> calls = rate(before, session, rank);
      const bool other_namespace = rank.process == session::ProcessState::kUnknown;
      text += fmt::format("{:>4} {:>8} {:<9} {:<8} {:>12} {:>10} {:>6} {:>9} {:>9} {}\n", rank.rank, rank.pid,
                          rank.pid == 0     ? "absent"
                          : other_namespace ? "alive"
                                            : process_state_name(rank.process),
                          worker_word(rank), rank.completed, calls ? fmt::format("{:.0f}", *calls) : "-", rank.queued,
                          rank.launches, rank.host_waits == 0 ? "-" : duration_text(rank.host_waited_ns),
                          waiting_text(rank));
    }
    const Culprit culprit = find_culprit(session);
    if (culprit.finding != Finding::kNobodyWaits) text += culprit.text + "\n";
  }
  return text.empty() ? "no session of this user is running\n" : text;
}

std::string top_json(const std::vector<SessionView>& before, const std::vector<SessionView>& now) {
  Json sessions = Json::array();
  for (const SessionView& session : now) {
    Json ranks = Json::array();
    for (const RankView& rank : session.ranks) ranks.push_back(rank_json(before, session, rank));
    const Culprit culprit = find_culprit(session);
    sessions.push_back({{"session", session.name},
                        {"version", session.version},
                        {"device", session.cuda ? "cuda" : "cpu"},
                        {"queue_depth", session.queue_depth},
                        {"taken_ns", session.taken_ns},
                        {"error", session.unreadable.empty() ? Json(nullptr) : Json(session.unreadable)},
                        {"ranks", ranks},
                        {"culprit", {{"ranks", culprit.ranks}, {"text", culprit.text}}}});
  }
  const Json json{{"schema", 1}, {"kind", "ringbell-top"}, {"sessions", sessions}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string top_prometheus(const std::vector<SessionView>& now) {
  std::string text;
  for (const Metric& metric : metrics()) {
    text += fmt::format("# HELP ringbell_{} {}\n# TYPE ringbell_{} {}\n", metric.name, metric.help, metric.name,
                        metric.type);
    for (const SessionView& session : now) {
      for (const RankView& rank : session.ranks) {
        // A session's name is made of "ringbell", digits and dashes: nothing to escape.
        text += fmt::format("ringbell_{}{{session=\"{}\",rank=\"{}\",pid=\"{}\"}} {}\n", metric.name,
                            session.name.substr(1), rank.rank, rank.pid, metric.value(rank));
      }
    }
  }
  return text;
}

}  // namespace ringbell::tools
