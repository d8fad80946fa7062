// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's failure record in words: which call, which step, who was awaited, what was seen.
#ifndef RINGBELL_RUNTIME_FAILURE_TEXT_HPP_
#define RINGBELL_RUNTIME_FAILURE_TEXT_HPP_

#include <cstdint>
#include <string>

#include "device/layout/control.hpp"

namespace ringbell {

/// @param rank whose record it is. One that was told of a time-out by a peer has its own item, step and values in the
///   record beside the peer's and the awaited rank's numbers; only the latter belong together, and only they are told.
/// @param timeout_ns the operation time-out, the same on all ranks: how long whoever gave up had waited
/// @param way whose call it was; launched calls are numbered by themselves
std::string failure_text(const device::WaitRecord& record, unsigned rank, std::uint64_t timeout_ns,
                         unsigned way = device::kHostWay);

/// "header", "data line", ..
const char* awaited_name(device::WaitFor what);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_FAILURE_TEXT_HPP_
