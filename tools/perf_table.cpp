// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_table.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/build_info.hpp"
#include "tools/statistics.hpp"

namespace ringbell::tools {
namespace {

constexpr const char* kKeyFormat = "{:>13}{:>14}{:>13}{:>7}{:>6}";
constexpr const char* kHeadFormat = "#{:>12}{:>14}{:>13}{:>7}{:>6}";
constexpr const char* kPlaceFormat = "{:>12}{:>9}{:>9}{:>8}";
constexpr const char* kOwnFormat = " {:>9} {:>7} {:>12} {:>11} {:>16}";
constexpr const char* kRatioFormat = " {:>24}";

std::string place_text(const std::optional<Measured>& measured, const Row& row, int ranks) {
  if (!measured) return fmt::format(kPlaceFormat, "-", "-", "-", "-");
  const double algorithm = algorithm_bandwidth_gbps(static_cast<double>(row.bytes), measured->us.p50);
  const bool has_bandwidth = is_time_of_a_call(row) || row.is_nop;
  const auto bandwidth = [&](double gbps) { return has_bandwidth ? fmt::format("{:.3f}", gbps) : std::string("-"); };
  return fmt::format(kPlaceFormat, fmt::format("{:.2f}", measured->us.p50), bandwidth(algorithm),
                     bandwidth(bus_bandwidth_gbps(algorithm, ranks)),
                     measured->wrong ? std::to_string(*measured->wrong)
                     : row.is_nop    ? "0"
                                     : "-");
}

/// No blanks: one column.
std::string way_text(IssueWay way) {
  return way.chain ? fmt::format("chain-{}", issue_name(way.issue)) : issue_name(way);
}

std::string tail_text(const std::vector<Row>& rows) {
  std::string text = fmt::format("# tail of the times{:>69}{:>36}\n", "out of place", "in place");
  text += fmt::format("#{:>12}{:>13}{:>7}{:>13}{:>18}{:>12}{:>12}{:>24}{:>12}\n", "size", "type", "redop", "issue",
                      "peer", "p99.9", "max", "p99.9", "max");
  for (const Row& row : rows) {
    text += fmt::format("#{:>12}{:>13}{:>7}{:>13}{:>18}", row.bytes, row.is_nop ? "nop" : dtype_name(row.dtype),
                        row.is_nop ? "-" : reduce_op_name(row.op), way_text(row.way), row.peer);
    text += fmt::format("{:>12.2f}{:>12.2f}", row.out_of_place->us.p999, row.out_of_place->us.max);
    text += row.in_place ? fmt::format("{:>24.2f}{:>12.2f}\n", row.in_place->us.p999, row.in_place->us.max)
                         : fmt::format("{:>24}{:>12}\n", "-", "-");
  }
  return text;
}

}  // namespace

std::string method_text(const PerfOptions& options) {
  constexpr const char* kL2[] = {"buffers as the calls before left them in the cache",
                                 "buffers out of the cache: others for every call",
                                 "buffers and all else out of the cache: overwritten before every call"};
  std::string text = fmt::format(
      "time = one call alone, submit to complete; every iteration starts at a barrier and counts the slowest rank; p50 "
      "over {} iterations after {} warm-up calls",
      options.iterations, options.warmup);
  const auto has = [&](auto is) { return std::any_of(options.ways.begin(), options.ways.end(), is); };
  if (has([](IssueWay way) { return way.issue == Issue::kAfter && !way.chain; }))
    text += "; after = the same behind an idle stream";
  if (has([](IssueWay way) { return way.issue == Issue::kStream && !way.chain; })) {
    text += fmt::format("; stream = one of {} calls back to back on a stream, by its clock", kSampleCalls);
  }
  if (has([](IssueWay way) { return way.issue == Issue::kGraph && !way.chain; })) {
    text += fmt::format("; graph = what each of {} calls adds to a graph of as many small kernels", kSampleCalls);
  }
  if (has([](IssueWay way) { return way.chain; })) {
    text += fmt::format("; chain = one of {} times producer kernel, call, consumer kernel, by the stream's clock",
                        kSampleCalls);
  }
  if (options.rounds > 1) text += fmt::format(", in each of {} rounds", options.rounds);
  if (!options.against.empty()) {
    text +=
        "; peers in processes of their own take turns with ours, one measures at a time; ratio = our p50 / the "
        "peer's, median over rounds (lowest..highest)";
  }
  if (options.l2 != L2State::kWarm) text += fmt::format("; {}", kL2[static_cast<int>(options.l2)]);
  if (options.rate_hz != 0) text += fmt::format("; at most {:g} calls a second", options.rate_hz);
  if (options.hold) text += "; ringbell's worker held";
  if (!options.check) return text + "; outputs not checked";
  if (has([](IssueWay way) { return is_single(way); })) {
    text += "; new values before every call, every rank's whole output checked after it";
  }
  if (has([](IssueWay way) { return !is_single(way); })) {
    text += "; new values before every sample of calls, every rank's whole output checked after the last of them";
  }
  return text;
}

std::string table_header(const PerfOptions& options, const Subject& subject, const std::vector<PeerInfo>& peers) {
  const BuildInfo& build = build_info();
  std::string text = fmt::format("# ringbell perf {}, commit {}{}: AllReduce, {} ranks on {}, seed {}\n", build.version,
                                 build.commit, build.dirty ? " (modified)" : "", subject.ranks,
                                 subject.device == DeviceKind::kCuda ? "cuda" : "cpu", options.seed);
  text += fmt::format("# {}\n", subject.describe);
  for (const PeerInfo& peer : peers) {
    if (peer.lost) continue;
    text += fmt::format("# peer {}: {}", peer.name, peer.about);
    for (const auto& [name, value] : peer.forced) text += fmt::format(", {}={}", name, value);
    text += "\n";
  }
  text += fmt::format("# method: {}\n", method_text(options));
  text += "# nop: an empty command through queue and worker, the floor of every call; '-': not measured\n";
  text += fmt::format("#\n#{:>52}{:>38}{:>38}\n", "", "out of place", "in place");
  const std::string place = fmt::format(kPlaceFormat, "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format(kPlaceFormat, "(us)", "(GB/s)", "(GB/s)", "");
  text += fmt::format(kHeadFormat, "size", "count", "type", "redop", "root") + place + place;
  text += fmt::format(kOwnFormat, "algo", "proto", "issue", "p99", "peer");
  if (!options.against.empty()) text += fmt::format(kRatioFormat, "ratio");
  if (options.hash) text += fmt::format("{:>18}", "hash");
  text += fmt::format(kHeadFormat, "(B)", "(elements)", "", "", "").insert(0, 1, '\n') + units + units;
  text += fmt::format(kOwnFormat, "", "", "", "(us)", "") + "\n";
  return text;
}

std::string table_row(const Row& row, const PerfOptions& options, int ranks) {
  const Measured& measured = *row.out_of_place;
  std::string text = fmt::format(kKeyFormat, row.bytes, row.count, row.is_nop ? "-" : dtype_name(row.dtype),
                                 row.is_nop ? "-" : reduce_op_name(row.op), -1);
  text += place_text(row.out_of_place, row, ranks) + place_text(row.in_place, row, ranks);
  text +=
      fmt::format(kOwnFormat, row.is_nop ? "nop" : measured.path.algorithm, row.is_nop ? "-" : measured.path.protocol,
                  way_text(row.way), fmt::format("{:.2f}", measured.us.p99), row.peer);
  if (!options.against.empty()) {
    // No blanks: one column.
    text += fmt::format(kRatioFormat, row.ratio ? fmt::format("{:.2f}({:.2f}..{:.2f})", row.ratio->median,
                                                              row.ratio->lowest, row.ratio->highest)
                                                : "-");
  }
  if (options.hash) text += measured.hash ? fmt::format("  {:016x}", *measured.hash) : fmt::format("{:>18}", "-");
  return text + "\n";
}

std::string table_footer(const std::vector<Row>& rows, const PerfOptions& options, int ranks) {
  double sum = 0;
  int places = 0;
  for (const Row& row : rows) {
    if (!is_time_of_a_call(row) || !row.is_ours()) continue;
    for (const auto& measured : {row.out_of_place, row.in_place}) {
      if (!measured) continue;
      sum += bus_bandwidth_gbps(algorithm_bandwidth_gbps(static_cast<double>(row.bytes), measured->us.p50), ranks);
      ++places;
    }
  }
  const std::uint64_t wrong = total_wrong(rows);
  std::string text = options.tail ? tail_text(rows) : "";
  text += options.check ? fmt::format("# wrong elements: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED")
                        : std::string("# wrong elements: not checked\n");
  if (places > 0) text += fmt::format("# average bus bandwidth: {:.3f} GB/s\n", sum / places);
  return text;
}

std::uint64_t total_wrong(const std::vector<Row>& rows) {
  std::uint64_t total = 0;
  for (const Row& row : rows) {
    for (const auto& measured : {row.out_of_place, row.in_place}) {
      if (measured && measured->wrong) total += *measured->wrong;
    }
  }
  return total;
}

}  // namespace ringbell::tools
