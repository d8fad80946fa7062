// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A core for the thread that measures. Left to the system it lands elsewhere in every run, and rank by rank the
// distance to GPU and peers changes with it: measured, 5 to 17 % between two runs of one command.
#ifndef RINGBELL_TOOLS_OWN_CORE_HPP_
#define RINGBELL_TOOLS_OWN_CORE_HPP_

#include <vector>

namespace ringbell::tools {

/// @param allowed cores that this process may use, in order
/// @return the core of `rank`, the same for every group of `world` ranks that take turns; -1 where there are fewer than
/// four for each rank: then helper threads and other groups need them more
int core_of_rank(const std::vector<int>& allowed, int rank, int world);

/// Call when all is set up: threads that libraries have started keep the cores that they had. Moves nobody else.
void stay_on_own_core(int rank, int world) noexcept;

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_OWN_CORE_HPP_
