// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A session as `ringbell why` tells it: a line for the session, one a rank, the culprit last.
#ifndef RINGBELL_TOOLS_WHY_TEXT_HPP_
#define RINGBELL_TOOLS_WHY_TEXT_HPP_

#include <cstdint>
#include <string>

#include "runtime/session_view.hpp"
#include "tools/why_culprit.hpp"

namespace ringbell::tools {

/// All lines but the culprit's.
std::string session_text(const session::SessionView& session);
/// "350 ms", "2.4 s".
std::string duration_text(std::uint64_t nanos);
/// "parked (idle)", "running, held", ..
std::string worker_text(const session::RankView& rank);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_WHY_TEXT_HPP_
