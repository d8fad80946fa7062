// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The processes of a perf run: ringbell's ranks and, for each peer of --against, ranks of its own beside them.
#ifndef RINGBELL_TOOLS_PERF_GROUPS_HPP_
#define RINGBELL_TOOLS_PERF_GROUPS_HPP_

#include <string>
#include <vector>

#include "tools/options.hpp"
#include "tools/process_group.hpp"

namespace ringbell::tools {

/// Starts all and waits for their ends. @param arguments as typed, program name first
/// @return ringbell's own. @throws ExitError
GroupResult run_perf_groups(const PerfOptions& options, int ranks, DeviceKind device,
                            const std::vector<std::string>& arguments);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_GROUPS_HPP_
