// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// RINGBELL_FAULT: which publish of which rank goes wrong, and how. A pure function of the text; executors hand the plan
// to the worker (device/mem/ops_fault.hpp).
#ifndef RINGBELL_HOST_FAULT_SPEC_HPP_
#define RINGBELL_HOST_FAULT_SPEC_HPP_

#include <string_view>

#include "device/mem/ops_fault.hpp"

namespace ringbell::host {

/// Reads `KIND:rank=R:publish=N`, where KIND is flip, drop, delay or tear and N is a number from 1, or `all` for delay
/// and tear. Those two take `:us=U`, 1 to 10,000,000 microseconds, 100 if not said. An empty text is no fault.
/// @return the plan of rank `rank`; kind is kNone for every rank that the text does not name
/// @throws Error kInvalidArgument naming the text, what is wrong with it, and the form
device::FaultPlan parse_fault(std::string_view text, int rank);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_FAULT_SPEC_HPP_
