// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Dumps of ranks (runtime/flight_dump.hpp), read and put side by side.
#ifndef RINGBELL_TOOLS_WHY_DUMPS_HPP_
#define RINGBELL_TOOLS_WHY_DUMPS_HPP_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/flight_dump.hpp"
#include "runtime/session_view.hpp"

namespace ringbell::tools {

/// @param path for messages @throws ExitError(kExitEnvironment): no dump, or of another schema
FlightDump parse_dump(const std::string& path, std::string_view text);
/// @throws ExitError(kExitEnvironment): as above, or the file cannot be read
FlightDump read_dump(const std::string& path);

/// The first call for which the ranks' records differ, or which a rank has not made. In words; empty: there is none.
std::string first_difference(const std::vector<FlightDump>& dumps);

/// What the dumps say, as if it had been looked at when each was made.
/// @throws ExitError(kExitEnvironment): of several sessions, or two of one rank
session::SessionView merge_dumps(const std::vector<FlightDump>& dumps, const std::vector<std::string>& paths);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_WHY_DUMPS_HPP_
