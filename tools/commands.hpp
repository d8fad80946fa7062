// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The program's commands. Each returns the exit code or throws ExitError or ringbell::Error.
#ifndef RINGBELL_TOOLS_COMMANDS_HPP_
#define RINGBELL_TOOLS_COMMANDS_HPP_

#include <string>
#include <vector>

#include "runtime/session.hpp"
#include "tools/options.hpp"

namespace ringbell::tools {

/// Starts options.ranks processes of a command.
int run_command(const RunOptions& options);

/// Lists this user's objects in /dev/shm and perf's temporary folders; removes those whose owners are dead.
int clean_command(const CleanOptions& options);

/// Tells whom everybody waits for. @return 0 nobody waits, 1 somebody does, 2 a communicator has broken
int why_command(const WhyOptions& options);

/// Shows the counters of this user's sessions, once or every second until it is ended.
int top_command(const TopOptions& options);

/// Measures as one of the ranks that a launcher started, or starts them. @param arguments as typed, program name first
int perf_command(const PerfOptions& options, const std::vector<std::string>& arguments);

/// perf as one rank. Tells its own errors on standard error, with its rank.
int perf_rank(const PerfOptions& options, const session::Place& place, const std::vector<std::string>& arguments);

/// --device, else RINGBELL_DEVICE, else CUDA where there is a GPU. @throws ExitError: CUDA asked for and not there
DeviceKind perf_device(const PerfOptions& options);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_COMMANDS_HPP_
