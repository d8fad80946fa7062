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
#include "tools/perf_measure.hpp"

namespace ringbell::tools {

/// "time = one call alone, ...": also in the JSON.
std::string method_text(const PerfOptions& options);
std::string table_header(const PerfOptions& options, const Communicator& comm);
std::string table_row(const Row& row, const PerfOptions& options, int ranks);
std::string table_footer(const std::vector<Row>& rows, const PerfOptions& options, int ranks);

/// Wrong elements of all rows.
std::uint64_t total_wrong(const std::vector<Row>& rows);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_TABLE_HPP_
