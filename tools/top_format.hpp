// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What `ringbell top` shows of sessions, in its three forms. Pure.
#ifndef RINGBELL_TOOLS_TOP_FORMAT_HPP_
#define RINGBELL_TOOLS_TOP_FORMAT_HPP_

#include <string>
#include <vector>

#include "runtime/session_view.hpp"

namespace ringbell::tools {

/// @param before the last look: rates are over the time since then; sessions that it does not have get none
std::string top_table(const std::vector<session::SessionView>& before, const std::vector<session::SessionView>& now);
/// One line. tools/README.md has the fields.
std::string top_json(const std::vector<session::SessionView>& before, const std::vector<session::SessionView>& now);
/// Text exposition format 0.0.4.
std::string top_prometheus(const std::vector<session::SessionView>& now);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_TOP_FORMAT_HPP_
