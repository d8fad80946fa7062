// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell perf` before it is a rank: which ranks, where, and what their ends mean.
#include <cstdlib>

#include <signal.h>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/perf_groups.hpp"
#include "tools/process_group.hpp"
#include "tools/visible_devices.hpp"

namespace ringbell::tools {
namespace {

constexpr int kMostRanks = 8;
constexpr int kCpuRanks = 2;

int default_ranks(const PerfOptions& options, DeviceKind device) {
  if (device == DeviceKind::kCpu) return kCpuRanks;
  const int gpus = options.gpus.empty() ? visible_devices() : static_cast<int>(options.gpus.size());
  return gpus < kMostRanks ? gpus : kMostRanks;
}

int exit_code(const GroupResult& result) {
  if (result.received != 0) return kExitSignal + result.received;
  if (result.failed_rank < 0) return kExitOk;
  if (result.signal == 0) return result.exit_code;
  if (result.signal == SIGPIPE) return kExitSignal + SIGPIPE;  // `| head`: no error of ours
  complain("ringbell perf: rank " + std::to_string(result.failed_rank) + " was ended by signal " +
           std::to_string(result.signal) + "\n");
  return kExitLost;
}

int start_ranks(const PerfOptions& options, const std::vector<std::string>& arguments) {
  const DeviceKind device = perf_device(options);
  const int ranks = options.ranks != 0 ? options.ranks : default_ranks(options, device);
  if (device == DeviceKind::kCpu && !options.gpus.empty()) throw UsageError("--gpus: the ranks run on the CPU");
  return exit_code(run_perf_groups(options, ranks, device, arguments));
}

}  // namespace

DeviceKind perf_device(const PerfOptions& options) {
  DeviceKind device = options.device.value_or(DeviceKind::kAuto);
  const char* const variable = std::getenv("RINGBELL_DEVICE");
  if (!options.device && variable != nullptr) {
    const std::string text = variable;
    if (text == "cpu") device = DeviceKind::kCpu;
    if (text == "cuda") device = DeviceKind::kCuda;
  }
  if (device == DeviceKind::kCpu) return device;
  std::string why;
  if (visible_devices(&why) > 0) return DeviceKind::kCuda;
  if (device == DeviceKind::kAuto && options.gpus.empty()) return DeviceKind::kCpu;
  throw ExitError(kExitEnvironment, "--device cuda: " + why + "; use --device cpu");
}

int perf_command(const PerfOptions& options, const std::vector<std::string>& arguments) {
  session::check_environment();
  const auto place = session::place_from_environment();
  if (!place) return start_ranks(options, arguments);
  if (!options.against.empty() && options.seat.meeting_fd < 0) {
    throw UsageError(
        "--against under a launcher: perf starts ringbell's and the peers' ranks itself; run it without the launcher, "
        "with --ranks " +
        std::to_string(place->world));
  }
  if (options.ranks != 0 && options.ranks != place->world) {
    throw UsageError("--ranks " + std::to_string(options.ranks) + ", but a launcher started " +
                     std::to_string(place->world) + ": leave --ranks out");
  }
  return perf_rank(options, *place, arguments);
}

}  // namespace ringbell::tools
