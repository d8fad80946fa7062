// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts the ranks of a job as processes and stays until the last is gone. Used by `run` for any command and by `perf`
// for itself and, beside it, for those that it is compared with. What exit codes mean to the user is the caller's.
#ifndef RINGBELL_TOOLS_PROCESS_GROUP_HPP_
#define RINGBELL_TOOLS_PROCESS_GROUP_HPP_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ringbell::tools {

struct GroupPlan {
  std::vector<std::string> command;  ///< program (looked up in PATH) and arguments
  int ranks = 1;
  std::string session;                             ///< RINGBELL_SESSION
  std::map<std::string, std::string> environment;  ///< set in every rank, on top of what this process has
  std::vector<std::string> unset;                  ///< removed from it
  bool tag = false;                                ///< prefix every line of output with "[rank] "
  std::vector<int> inherited_fds;                  ///< kept open in the ranks under the same numbers
  int output_fd = -1;                              ///< standard output and error go there; -1: as they are here
};

struct GroupResult {
  int failed_rank = -1;  ///< the first that ended with anything but exit code 0, -1 when none did
  int exit_code = 0;     ///< of that rank, 0 when a signal ended it
  int signal = 0;        ///< that ended it
  int received = 0;      ///< first of SIGINT, SIGTERM, SIGHUP that came here and was passed on
  std::string error;     ///< why a rank could not be started, of a side group
};

/// Groups that run beside the main one: their ends are told and have no consequence for it.
struct SideGroups {
  std::vector<GroupPlan> plans;
  /// A side's last process is gone. Called once for each.
  std::function<void(std::size_t side, const GroupResult& result)> ended;
  /// Asked several times a second: should the side be ended?
  std::function<bool(std::size_t side)> unwanted;
};

/// Runs the ranks to their end. Ranks die with this process, however it ends. When one fails the others get SIGTERM,
/// after 5 s SIGKILL; signals that come here are passed on, SIGTERM and SIGHUP with the same 5 s. Sides still there 5 s
/// after the main group's last rank are killed. Call it from the only thread of the process: children die with the
/// thread that made them.
/// @throws ExitError(kExitEnvironment): a rank could not be started (those that were are ended)
GroupResult run_group(const GroupPlan& plan, const SideGroups* sides = nullptr);

/// A TCP port that nobody listens on, for MASTER_PORT.
int free_port();

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PROCESS_GROUP_HPP_
