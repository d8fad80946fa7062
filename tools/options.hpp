// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line, read: which command and its checked settings. How a value is read is parse.hpp.
#ifndef RINGBELL_TOOLS_OPTIONS_HPP_
#define RINGBELL_TOOLS_OPTIONS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ringbell.hpp"

namespace ringbell::tools {

struct RunOptions {
  int ranks = 0;
  std::optional<std::string> device;  ///< RINGBELL_DEVICE of the ranks; empty: as it is
  bool tag = false;
  std::vector<std::string> command;
};

struct PerfOptions {
  int ranks = 0;  ///< 0: not given
  std::optional<DeviceKind> device;
  std::vector<int> gpus;
  std::vector<std::uint64_t> sizes;  ///< bytes, in order
  int iterations = 20;
  int warmup = 5;
  bool check = true;
  std::vector<DType> dtypes;
  std::vector<ReduceOp> ops;
  std::string json_path;  ///< empty: none
  Algorithm algorithm = Algorithm::kAuto;
  Protocol protocol = Protocol::kAuto;
  std::uint32_t slot_bytes = 0;  ///< 0: the library's
  bool allow_shared_device = false;
  std::uint64_t seed = 1;
  double timeout_s = -1;  ///< -1: the library's
  bool hash = false;
  int meeting_fd = -1;  ///< in a rank that perf started
};

enum class Command { kText, kRun, kPerf, kEnvironment };

struct CommandLine {
  Command command = Command::kText;
  std::string text;  ///< kText: help or version, for standard output
  RunOptions run;
  PerfOptions perf;
};

/// The hidden option by which perf hands its ranks the meeting place.
inline constexpr std::string_view kMeetingOption = "--meeting-fd";

/// @throws UsageError naming the bad value and what is allowed
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_OPTIONS_HPP_
