// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank's process: its environment, its descriptors, its start. Who waits for it is process_group.hpp.
#ifndef RINGBELL_TOOLS_PROCESS_START_HPP_
#define RINGBELL_TOOLS_PROCESS_START_HPP_

#include <signal.h>
#include <sys/types.h>

#include "tools/process_group.hpp"

namespace ringbell::tools {

struct StartedRank {
  pid_t pid = 0;  ///< also its process group
  int out = -1;   ///< reading ends of its output, with plan.tag; the caller's
  int err = -1;
};

/// The process dies with this one. @param mask the signals that it starts with as blocked
/// @throws ExitError(kExitEnvironment): it could not be started, and nothing is left of it
StartedRank start_rank(const GroupPlan& plan, int rank, const sigset_t& mask);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PROCESS_START_HPP_
