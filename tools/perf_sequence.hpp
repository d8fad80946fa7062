// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The order of a perf run: rows, rounds, and whose turn it is. One rank conducts and tells the results; the other
// ranks, ringbell's and the peers', measure when they are told to.
#ifndef RINGBELL_TOOLS_PERF_SEQUENCE_HPP_
#define RINGBELL_TOOLS_PERF_SEQUENCE_HPP_

#include <string>
#include <vector>

#include "tools/meeting.hpp"
#include "tools/options.hpp"
#include "tools/perf_measure.hpp"
#include "tools/perf_rows.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {

/// Rank 0 of ringbell. Prints the table, writes the file. @param turns null without --against
/// @return the exit code
int conduct(const PerfOptions& options, const Subject& subject, Measurement& measurement, Turns* turns,
            const std::vector<std::string>& arguments);

/// Ringbell's other ranks without --against: all rows, in the conductor's order.
void follow(const PerfOptions& options, Measurement& measurement);

/// Every other rank with turns, until there are no more. @param about the library's version, of a peer
void take_turns(const PerfOptions& options, Measurement& measurement, Meeting& meeting, Turns& turns,
                const std::string& about);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_SEQUENCE_HPP_
