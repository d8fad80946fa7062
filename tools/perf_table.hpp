// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's table as text: nccl-tests' columns, then our own. Lines of text that is not the table start with #. Every row
// has the same number of columns; what was not measured is "-".
#ifndef RINGBELL_TOOLS_PERF_TABLE_HPP_
#define RINGBELL_TOOLS_PERF_TABLE_HPP_

#include <string>
#include <vector>

#include "tools/options.hpp"
#include "tools/perf_rows.hpp"

namespace ringbell::tools {

/// "time = one call alone, ...": also in the JSON.
std::string method_text(const PerfOptions& options);
/// @param peers those that are lost already are left out
std::string table_header(const PerfOptions& options, const Subject& subject, const std::vector<PeerInfo>& peers);
std::string table_row(const Row& row, const PerfOptions& options, int ranks);
std::string table_footer(const std::vector<Row>& rows, const PerfOptions& options, int ranks);

/// Wrong elements of all rows.
std::uint64_t total_wrong(const std::vector<Row>& rows);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_TABLE_HPP_
