// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell perf` before it is a rank: which ranks, where, and what their ends mean.
#include <cstdlib>

#include <signal.h>
#include <unistd.h>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/meeting.hpp"
#include "tools/output.hpp"
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

std::string own_program(const std::string& as_typed) {
  constexpr const char* kSelf = "/proc/self/exe";
  return access(kSelf, X_OK) == 0 ? kSelf : as_typed;
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
  GroupPlan plan;
  plan.ranks = options.ranks != 0 ? options.ranks : default_ranks(options, device);
  if (device == DeviceKind::kCpu && !options.gpus.empty()) throw UsageError("--gpus: the ranks run on the CPU");
  plan.session = session::new_token();
  plan.inherited_fd = Meeting::create_place();
  plan.command = arguments;
  plan.command.front() = own_program(arguments.front());
  plan.command.emplace_back(kMeetingOption);
  plan.command.push_back(std::to_string(plan.inherited_fd));
  plan.environment["RINGBELL_DEVICE"] = device == DeviceKind::kCpu ? "cpu" : "cuda";
  plan.unset = {"RINGBELL_LAUNCHER"};
  const GroupResult result = run_group(plan);
  close(plan.inherited_fd);
  const std::string leftover = session::remove_leftover(plan.session);
  if (!leftover.empty()) complain("ringbell perf: " + leftover + "\n");
  return exit_code(result);
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
  if (options.ranks != 0 && options.ranks != place->world) {
    throw UsageError("--ranks " + std::to_string(options.ranks) + ", but a launcher started " +
                     std::to_string(place->world) + ": leave --ranks out");
  }
  return perf_rank(options, *place, arguments);
}

}  // namespace ringbell::tools
