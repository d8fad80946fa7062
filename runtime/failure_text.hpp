// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's failure record in words: which call, which step, who was awaited, what was seen.
#ifndef RINGBELL_RUNTIME_FAILURE_TEXT_HPP_
#define RINGBELL_RUNTIME_FAILURE_TEXT_HPP_

#include <string>

#include "device/layout/control.hpp"

namespace ringbell {

std::string failure_text(const device::WaitRecord& record);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_FAILURE_TEXT_HPP_
