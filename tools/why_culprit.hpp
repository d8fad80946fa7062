// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Whom does everybody wait for? The rule alone, pure, over what is known of each rank, from a running session or from
// dumps.
#ifndef RINGBELL_TOOLS_WHY_CULPRIT_HPP_
#define RINGBELL_TOOLS_WHY_CULPRIT_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/session_view.hpp"

namespace ringbell::tools {

enum class Finding : std::uint8_t { kNobodyWaits, kSomebodyWaits, kBroken };

struct Culprit {
  Finding finding = Finding::kNobodyWaits;
  std::vector<int> ranks;    ///< who is to blame: one, or several that cannot be told apart; none: nobody waits
  std::vector<int> waiting;  ///< who waits, directly or behind others
  std::string text;          ///< one line: who, why, what helps
};

/// In this order: a session that broke is told by why it broke, and one in set-up by who has not come. Else, among
/// those that are waited for: who is gone or has left; who is stopped or traced; who has not made the call that others
/// are in; who keeps its own worker from running; and whoever is found by following "waits for" to its end. Of ranks
/// that wait for each other, the one that is furthest behind.
Culprit find_culprit(const session::SessionView& session);

/// "rank 2", "ranks 0, 1 and 3".
std::string ranks_text(const std::vector<int>& ranks);
/// "all_reduce float32 sum count 1000 (ring LL)", or "nop".
std::string call_text(const device::Command& command);
/// True if ranks may make these two as one call.
bool same_call(const device::Command& a, const device::Command& b);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_WHY_CULPRIT_HPP_
