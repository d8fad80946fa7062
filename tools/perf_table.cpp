// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_table.hpp"

#include <fmt/format.h>

#include "runtime/build_info.hpp"
#include "tools/statistics.hpp"

namespace ringbell::tools {
namespace {

constexpr const char* kKeyFormat = "{:>13}{:>14}{:>13}{:>7}{:>6}";
constexpr const char* kHeadFormat = "#{:>12}{:>14}{:>13}{:>7}{:>6}";
constexpr const char* kPlaceFormat = "{:>12}{:>9}{:>9}{:>8}";
constexpr const char* kOwnFormat = "{:>7}{:>8}{:>7}{:>12}{:>10}";

std::string place_text(const std::optional<Measured>& measured, const Row& row, int ranks) {
  if (!measured) return fmt::format(kPlaceFormat, "-", "-", "-", "-");
  const double algorithm = algorithm_bandwidth_gbps(static_cast<double>(row.bytes), measured->us.p50);
  return fmt::format(kPlaceFormat, fmt::format("{:.2f}", measured->us.p50), fmt::format("{:.3f}", algorithm),
                     fmt::format("{:.3f}", bus_bandwidth_gbps(algorithm, ranks)),
                     measured->wrong ? std::to_string(*measured->wrong)
                     : row.is_nop    ? "0"
                                     : "-");
}

}  // namespace

std::string method_text(const PerfOptions& options) {
  return fmt::format(
      "time = one call alone, submit to complete; every iteration starts at a barrier and counts the slowest rank; p50 "
      "over "
      "{} iterations after {} warm-up calls; {}",
      options.iterations, options.warmup,
      options.check ? "new values before every call, every rank's whole output checked after it"
                    : "outputs not checked");
}

std::string table_header(const PerfOptions& options, const Communicator& comm) {
  const BuildInfo& build = build_info();
  std::string text = fmt::format("# ringbell perf {}, commit {}{}: AllReduce, {} ranks on {}, seed {}\n", build.version,
                                 build.commit, build.dirty ? " (modified)" : "", comm.world(),
                                 comm.device() == DeviceKind::kCuda ? "cuda" : "cpu", options.seed);
  text += fmt::format("# {}\n", comm.describe());
  text += fmt::format("# method: {}\n", method_text(options));
  text += "# nop: an empty command through queue and worker, the floor of every call; '-': not measured\n";
  text += fmt::format("#\n#{:>52}{:>38}{:>38}\n", "", "out of place", "in place");
  const std::string place = fmt::format(kPlaceFormat, "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format(kPlaceFormat, "(us)", "(GB/s)", "(GB/s)", "");
  text += fmt::format(kHeadFormat, "size", "count", "type", "redop", "root") + place + place;
  text += fmt::format(kOwnFormat, "algo", "proto", "issue", "p99", "peer");
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
  text += fmt::format(kOwnFormat, row.is_nop ? "nop" : algorithm_name(measured.path.algorithm),
                      row.is_nop ? "-" : protocol_name(measured.path.protocol), "host",
                      fmt::format("{:.2f}", measured.us.p99), "ringbell");
  if (options.hash) text += measured.hash ? fmt::format("  {:016x}", *measured.hash) : fmt::format("{:>18}", "-");
  return text + "\n";
}

std::string table_footer(const std::vector<Row>& rows, const PerfOptions& options, int ranks) {
  double sum = 0;
  int places = 0;
  for (const Row& row : rows) {
    if (row.is_nop) continue;
    for (const auto& measured : {row.out_of_place, row.in_place}) {
      if (!measured) continue;
      sum += bus_bandwidth_gbps(algorithm_bandwidth_gbps(static_cast<double>(row.bytes), measured->us.p50), ranks);
      ++places;
    }
  }
  const std::uint64_t wrong = total_wrong(rows);
  std::string text = options.check ? fmt::format("# wrong elements: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED")
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
