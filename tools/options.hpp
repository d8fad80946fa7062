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
#include "tools/issue.hpp"
#include "tools/peer_names.hpp"

namespace ringbell::tools {

struct RunOptions {
  int ranks = 0;
  std::optional<std::string> device;  ///< RINGBELL_DEVICE of the ranks; empty: as it is
  bool tag = false;
  std::vector<std::string> command;
};

/// What of the buffers is in the cache when a timed call begins: perf_cache.hpp.
enum class L2State : std::uint8_t { kWarm, kCold, kFlush };
inline constexpr const char* kL2Names[] = {"warm", "cold", "flush"};

/// Where a process that perf started belongs. Its memory files are descriptors of `owner`; 0: inherited ones.
struct Seat {
  int owner = 0;
  int meeting_fd = -1;  ///< -1: no seat, somebody else started this process
  int turns_fd = -1;    ///< -1: nobody to take turns with
  int group = 0;        ///< 0: ringbell; n: peer n - 1 of --against
  bool probe = false;   ///< only asks the peer's library which algorithms it takes
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
  std::vector<PeerName> against;
  int rounds = 1;
  L2State l2 = L2State::kWarm;
  std::vector<IssueWay> ways = {IssueWay{}};  ///< rows of each size
  bool tail = false;
  double rate_hz = 0;  ///< calls a second at most; 0: as fast as they go
  bool hold = false;   ///< ringbell's worker is held: no idle park, no lease
  Seat seat;
};

struct CleanOptions {
  bool dry_run = false;
  std::optional<std::string> session;  ///< RINGBELL_SESSION, or an object's name; nothing: all
};

struct WhyOptions {
  std::optional<std::uint32_t> pid;    ///< nothing of the three: all sessions of this user
  std::optional<std::string> session;  ///< RINGBELL_SESSION, or a name as `why` prints it
  std::vector<std::string> files;      ///< dumps
};

enum class TopFormat : std::uint8_t { kTable, kJson, kPrometheus };
struct TopOptions {
  bool once = false;
  TopFormat format = TopFormat::kTable;
};

enum class Command { kText, kRun, kPerf, kEnvironment, kClean, kWhy, kTop };

struct CommandLine {
  Command command = Command::kText;
  std::string text;  ///< kText: help or version, for standard output
  RunOptions run;
  PerfOptions perf;
  CleanOptions clean;
  WhyOptions why;
  TopOptions top;
};

/// The hidden option by which perf tells the processes that it starts their seat, and its value.
inline constexpr std::string_view kSeatOption = "--seat";
std::string seat_text(const Seat& seat);

/// @throws UsageError naming the bad value and what is allowed
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_OPTIONS_HPP_
