// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/why_dumps.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "device/config.hpp"
#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"
#include "tools/why_culprit.hpp"

namespace ringbell::tools {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw ExitError(kExitEnvironment,
                  fmt::format("'{}': {}; give files that a rank left in RINGBELL_DUMP_DIR", path, what));
}

/// The value whose name is `text`. @throws std::out_of_range
template <class Enum, class Name>
Enum named(const std::string& text, int count, Name name) {
  for (int i = 0; i < count; ++i) {
    if (text == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw std::out_of_range("'" + text + "' is unknown");
}

int rank_or_none(const Json& json) { return json.is_null() ? -1 : json.get<int>(); }

FlightRecord record_of(const Json& json) {
  FlightRecord record;
  record.seq = json.at("seq").get<std::uint64_t>();
  device::Command& command = record.command;
  command.kind =
      json.at("call").get<std::string>() == "nop" ? device::CommandKind::kNop : device::CommandKind::kAllReduce;
  command.dtype = named<DType>(json.at("dtype").get<std::string>(), kDTypeCount, dtype_name);
  command.op = named<ReduceOp>(json.at("op").get<std::string>(), kReduceOpCount, reduce_op_name);
  command.count = json.at("count").get<std::uint64_t>();
  command.tag = json.at("tag").get<std::uint64_t>();
  command.algorithm = named<Algorithm>(json.at("algo").get<std::string>(), kAlgorithmCount, algorithm_name);
  command.protocol = named<Protocol>(json.at("proto").get<std::string>(), kProtocolCount, protocol_name);
  command.channels = json.at("channels").get<std::uint16_t>();
  record.submitted_ns = json.at("submitted_ns").get<std::uint64_t>();
  if (!json.at("seen_ns").is_null()) record.seen_ns = json.at("seen_ns").get<std::uint64_t>();
  record.status = named<Status>(json.at("status").get<std::string>(), kStatusCount, status_name);
  return record;
}

FlightDump dump_of(const Json& json) {
  FlightDump dump;
  dump.version = json.at("version").get<std::string>();
  dump.session = json.at("session").get<std::string>();
  dump.rank = json.at("rank").get<int>();
  dump.world = json.at("world").get<int>();
  if (dump.world < 1 || dump.world > device::kMaxRanks || dump.rank < 0 || dump.rank >= dump.world) {
    throw std::out_of_range(fmt::format("rank {} of {} is none", dump.rank, dump.world));
  }
  dump.pid = json.at("pid").get<std::uint32_t>();
  dump.dumped_ns = json.at("dumped_ns").get<std::uint64_t>();
  dump.submitted = json.at("submitted").get<std::uint64_t>();
  dump.completed = json.at("completed").get<std::uint64_t>();
  dump.stream_calls = json.at("stream_calls").get<std::uint64_t>();
  const Json& failure = json.at("failure");
  dump.failure.status = named<Status>(failure.at("status").get<std::string>(), kStatusCount, status_name);
  dump.failure.seq = failure.at("seq").get<std::uint64_t>();
  dump.failure.launched = failure.at("launched").get<bool>();
  dump.failure.reporter = rank_or_none(failure.at("reporter"));
  dump.failure.peer = rank_or_none(failure.at("peer"));
  dump.failure.step = failure.at("step").get<std::uint32_t>();
  if (!failure.at("awaited").is_null()) dump.failure.awaited = failure.at("awaited").get<std::string>();
  dump.failure.text = failure.at("text").get<std::string>();
  for (const Json& record : json.at("records")) dump.records.push_back(record_of(record));
  return dump;
}

const FlightRecord* record_at(const FlightDump& dump, std::uint64_t seq) {
  const auto at = std::find_if(dump.records.begin(), dump.records.end(), [&](const auto& r) { return r.seq == seq; });
  return at == dump.records.end() ? nullptr : &*at;
}

std::optional<session::Call> call_at(const FlightDump& dump, std::uint64_t seq) {
  const FlightRecord* const record = record_at(dump, seq);
  if (record == nullptr) return std::nullopt;
  return session::Call{seq, false, record->command};
}

}  // namespace

FlightDump parse_dump(const std::string& path, std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object() || json.value("kind", Json()) != Json(kDumpKind)) refuse_file(path, "is no dump of ringbell");
  const Json schema = json.value("schema", Json());
  if (schema != Json(kDumpSchema)) {
    throw ExitError(kExitEnvironment,
                    fmt::format("'{}': has schema {}, this program reads {}; use the `ringbell` of the library that "
                                "wrote it (version {})",
                                path, schema.dump(), kDumpSchema, json.value("version", Json("unknown")).dump()));
  }
  try {
    return dump_of(json);
  } catch (const std::exception& error) {
    refuse_file(path, fmt::format("is a dump that was changed or cut: {}", error.what()));
  }
}

FlightDump read_dump(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file) refuse_file(path, std::string("cannot be read: ") + std::strerror(errno));
  text << file.rdbuf();
  return parse_dump(path, text.str());
}

std::string first_difference(const std::vector<FlightDump>& dumps) {
  // Older records may have been overwritten on some ranks.
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  for (const FlightDump& dump : dumps) {
    if (!dump.records.empty()) first = std::max(first, dump.records.front().seq);
    end = std::max(end, dump.submitted);
  }
  for (std::uint64_t seq = first; seq < end; ++seq) {
    std::vector<int> without;
    bool differs = false;
    const FlightRecord* known = nullptr;
    std::string calls;
    for (const FlightDump& dump : dumps) {
      const FlightRecord* const record = record_at(dump, seq);
      if (record == nullptr) {
        without.push_back(dump.rank);
        continue;
      }
      const std::uint64_t tag = record->command.tag;
      calls += fmt::format(", rank {}: {}{}", dump.rank, call_text(record->command),
                           tag == 0 ? "" : fmt::format(" tag {}", tag));
      differs = differs || (known != nullptr && !same_call(known->command, record->command));
      known = record;
    }
    if (known == nullptr || (!differs && without.empty())) continue;
    std::string text = fmt::format("first difference: call {}", seq);
    if (differs) text += calls;
    if (!without.empty()) text += fmt::format(", not made by {}", ranks_text(without));
    return text;
  }
  return {};
}

session::SessionView merge_dumps(const std::vector<FlightDump>& dumps, const std::vector<std::string>& paths) {
  session::SessionView view;
  view.name = dumps.front().session;
  view.version = dumps.front().version;
  view.ranks.resize(static_cast<std::size_t>(dumps.front().world));
  for (std::size_t r = 0; r < view.ranks.size(); ++r) {
    view.ranks[r].rank = static_cast<int>(r);
    view.ranks[r].joined = true;
  }
  for (std::size_t i = 0; i < dumps.size(); ++i) {
    const FlightDump& dump = dumps[i];
    if (dump.session != view.name || static_cast<std::size_t>(dump.world) != view.ranks.size()) {
      throw ExitError(kExitEnvironment,
                      fmt::format("'{}' is of session {} with {} ranks, '{}' of session {} with {}; give the dumps of "
                                  "one session",
                                  paths[0], view.name, view.ranks.size(), paths[i], dump.session, dump.world));
    }
    session::RankView& rank = view.ranks[static_cast<std::size_t>(dump.rank)];
    if (rank.pid != 0) {
      throw ExitError(kExitEnvironment, fmt::format("'{}' is a second dump of rank {} (pids {} and {}); give one",
                                                    paths[i], dump.rank, rank.pid, dump.pid));
    }
    rank.pid = dump.pid;
    rank.completed = dump.completed;
    rank.queued = dump.submitted - std::min(dump.submitted, dump.completed);
    rank.current = call_at(dump, dump.completed);
    rank.failure = dump.failure;
  }
  const auto mismatch = std::find_if(dumps.begin(), dumps.end(), [](const FlightDump& dump) {
    return dump.failure.status == Status::kMismatch && !dump.failure.launched;
  });
  if (mismatch == dumps.end()) return view;
  for (const FlightDump& dump : dumps) {
    view.ranks[static_cast<std::size_t>(dump.rank)].failed_call = call_at(dump, mismatch->failure.seq);
  }
  return view;
}

}  // namespace ringbell::tools
