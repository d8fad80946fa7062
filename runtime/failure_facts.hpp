// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Why a communicator broke, in numbers, from what its worker and its host left in the control block. In words it is
// failure_text.hpp.
#ifndef RINGBELL_RUNTIME_FAILURE_FACTS_HPP_
#define RINGBELL_RUNTIME_FAILURE_FACTS_HPP_

#include <cstdint>
#include <string>

#include "device/layout/control.hpp"

namespace ringbell {

/// Ranks are -1 where none is meant.
struct FailureFacts {
  Status status = Status::kOk;  ///< kOk: nothing broke
  std::uint64_t seq = 0;
  bool launched = false;   ///< `seq` counts launched calls
  int reporter = -1;       ///< who found it
  int peer = -1;           ///< whom it is about
  std::uint32_t step = 0;  ///< of the reporter's call
  std::string awaited;     ///< "header", ..; empty: nothing
  std::string text;        ///< as last_error() has it
};

/// @param completed calls of the queue that have completed: where the host gave up when no worker did
/// @param timeout_ns as for failure_text
FailureFacts failure_facts(const device::ControlBlock& control, unsigned rank, std::uint64_t completed,
                           std::uint64_t timeout_ns);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_FAILURE_FACTS_HPP_
