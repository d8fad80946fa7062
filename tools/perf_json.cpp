// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_json.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/build_info.hpp"
#include "tools/machine.hpp"
#include "tools/perf_table.hpp"
#include "tools/statistics.hpp"

extern char** environ;  // NOLINT

namespace ringbell::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Four decimals: a nanosecond is the clock's own grain.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

// Settings that change what is measured; which rank this is and the session's name are not among them.
Json environment_json() {
  constexpr std::string_view kPrefixes[] = {"RINGBELL_", "CUDA_", "NCCL_"};
  constexpr std::string_view kLeftOut[] = {"RINGBELL_RANK",    "RINGBELL_WORLD",    "RINGBELL_LOCAL_RANK",
                                           "RINGBELL_SESSION", "RINGBELL_LOG_FILE", "CUDA_HOME",
                                           "CUDA_PATH"};
  Json environment = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool ours = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                  [&](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
    const bool left_out = std::find(std::begin(kLeftOut), std::end(kLeftOut), name) != std::end(kLeftOut);
    if (ours && !left_out && name.size() < text.size()) {
      // That a path is set may matter; where it leads on this machine does not.
      const std::string_view value = text.substr(name.size() + 1);
      environment[std::string(name)] = std::string(value.substr(0, 1) == "/" ? "(a path)" : value);
    }
  }
  return environment;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json machine_json(DeviceKind device) {
  const Machine machine = describe_machine(device == DeviceKind::kCuda);
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"kernel", machine.kernel},
          {"gpu_count", machine.cuda.gpus.size()},
          {"gpus", machine.cuda.gpus},
          {"driver", text_or_null(machine.driver)},
          {"driver_cuda", text_or_null(machine.cuda.driver_supports)},
          {"cuda_runtime", text_or_null(machine.cuda.runtime)}};
}

/// NCCL's variables as the peer's processes have them, and those that only they have.
Json peer_environment_json(const PeerInfo& peer) {
  Json environment = Json::object();
  const bool nccl = peer.name.substr(0, 4) == "nccl";
  const Json here = environment_json();
  for (const auto& [name, value] : here.items()) {
    if (nccl && name.substr(0, 5) == "NCCL_") environment[name] = value;
  }
  for (const auto& [name, value] : peer.forced) environment[name] = value;
  return environment;
}

void add_peer_fields(Json& json, const PeerInfo& peer, const std::optional<Ratio>& ratio) {
  json["ratio"] = ratio ? Json(rounded(ratio->median)) : Json(nullptr);
  json["ratio_min"] = ratio ? Json(rounded(ratio->lowest)) : Json(nullptr);
  json["ratio_max"] = ratio ? Json(rounded(ratio->highest)) : Json(nullptr);
  json["peer_version"] = text_or_null(peer.about);
  json["peer_env"] = peer_environment_json(peer);
  json["nvls"] = peer.nvls ? Json(*peer.nvls) : Json(nullptr);
}

Json row_json(const Row& row, const Measured& measured, bool in_place, const PerfOptions& options, int ranks,
              DeviceKind device) {
  const double algorithm = algorithm_bandwidth_gbps(static_cast<double>(row.bytes), measured.us.p50);
  Json json = {
      {"bytes", row.bytes},
      {"count", row.count},
      {"dtype", row.is_nop ? "none" : dtype_name(row.dtype)},
      {"op", row.is_nop ? "none" : reduce_op_name(row.op)},
      {"algo", row.is_nop ? "nop" : measured.path.algorithm},
      {"proto", row.is_nop ? "none" : measured.path.protocol},
      {"issue", issue_name(row.way)},
      {"peer", row.peer},
      {"ranks", ranks},
      {"device", device == DeviceKind::kCuda ? "cuda" : "cpu"},
      {"channels", measured.path.channels != 0 ? Json(measured.path.channels) : Json(nullptr)},
      {"in_place", in_place},
      {"iters", options.iterations},
      {"rounds", measured.round_p50_us.size()},
      {"l2", kL2Names[static_cast<int>(options.l2)]},
      {"p10_us", rounded(measured.us.p10)},
      {"p50_us", rounded(measured.us.p50)},
      {"p99_us", rounded(measured.us.p99)},
      {"p999_us", rounded(measured.us.p999)},
      {"max_us", rounded(measured.us.max)},
      {"cv", rounded(measured.us.cv)},
      {"algbw_gbps", !is_time_of_a_call(row) ? Json(nullptr) : Json(rounded(algorithm))},
      {"busbw_gbps", !is_time_of_a_call(row) ? Json(nullptr) : Json(rounded(bus_bandwidth_gbps(algorithm, ranks)))},
      {"wrong", measured.wrong ? Json(*measured.wrong) : Json(nullptr)},
      {"hash", measured.hash ? Json(fmt::format("{:016x}", *measured.hash)) : Json(nullptr)}};
  if (options.rate_hz != 0) json["rate_hz"] = options.rate_hz;
  if (options.hold) json["hold"] = true;
  if (measured.launches) json["launches"] = *measured.launches;
  if (row.way.chain) json["chain"] = issue_name(row.way.issue);
  if (!is_single(row.way)) json["calls_per_sample"] = kSampleCalls;
  if (!row.is_nop && measured.path.chunk_bytes != 0) {  // a row of ringbell's, resident or launched
    json["chunk_bytes"] = measured.path.chunk_bytes;
  }
  if (!row.is_nop && measured.path.chunk_bytes != 0 && is_single(row.way)) {
    json["sent_bytes"] = measured.sent_bytes;
    json["expected_bytes"] = row.expected_bytes(ranks, measured.path);
  }
  return json;
}

}  // namespace

std::string json_document(const std::vector<Row>& rows, const std::vector<PeerInfo>& peers, const PerfOptions& options,
                          const std::string& command, const Subject& subject) {
  const BuildInfo& build = build_info();
  Json list = Json::array();
  for (const Row& row : rows) {
    const auto peer =
        std::find_if(peers.begin(), peers.end(), [&](const PeerInfo& one) { return one.name == row.peer; });
    const auto add = [&](const Measured& measured, bool in_place, const std::optional<Ratio>& ratio) {
      list.push_back(row_json(row, measured, in_place, options, subject.ranks, subject.device));
      if (peer != peers.end()) add_peer_fields(list.back(), *peer, ratio);
    };
    if (row.out_of_place) add(*row.out_of_place, false, row.ratio);
    if (row.in_place) add(*row.in_place, true, row.ratio_in_place);
  }
  const Json document = {{"schema", 1},
                         {"machine", machine_json(subject.device)},
                         {"commit", build.commit},
                         {"dirty", build.dirty},
                         {"version", build.version},
                         {"command", command},
                         {"env", environment_json()},
                         {"method", method_text(options)},
                         {"rows", list}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ringbell::tools
