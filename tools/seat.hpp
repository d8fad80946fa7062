// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How a process that perf started comes to the shared pages of its seat (options.hpp).
#ifndef RINGBELL_TOOLS_SEAT_HPP_
#define RINGBELL_TOOLS_SEAT_HPP_

#include <memory>

#include "tools/meeting.hpp"
#include "tools/options.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {

/// A file that another process of this user holds open; another launcher than perf does not hand descriptors down.
/// @param owner 0: this process  @return a new descriptor. @throws ExitError(kExitEnvironment) with the remedy
int open_descriptor(int owner, int fd);

/// Longer than any call may take: a peer may be checking its buffers. 0: for ever.
double meeting_limit_s(const PerfOptions& options);

std::unique_ptr<Meeting> take_seat(const PerfOptions& options, int rank, int world);
/// Null when there are no turns.
std::unique_ptr<Turns> join_turns(const PerfOptions& options);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_SEAT_HPP_
