// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's results as JSON, schema 1: a row per placement; what was not measured is null. bench/README.md tells how the
// numbers are made.
#ifndef RINGBELL_TOOLS_PERF_JSON_HPP_
#define RINGBELL_TOOLS_PERF_JSON_HPP_

#include <string>
#include <vector>

#include "tools/options.hpp"
#include "tools/perf_rows.hpp"

namespace ringbell::tools {

/// @param command the command line as typed
std::string json_document(const std::vector<Row>& rows, const std::vector<PeerInfo>& peers, const PerfOptions& options,
                          const std::string& command, const Subject& subject);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_JSON_HPP_
