// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// From a call to the way it goes. Pure: a function of what all ranks agree on, never of this rank's pointers or
// environment, so that all ranks choose alike without talking.
#ifndef RINGBELL_RUNTIME_PLAN_HPP_
#define RINGBELL_RUNTIME_PLAN_HPP_

#include <cstdint>

#include "device/layout/window.hpp"
#include "device/ringbell_types.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell {

/// What planning rests on; agreed at init.
struct PlanBasis {
  std::uint32_t world = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool ll128_permitted = true;  ///< every pair passed the torn-line test over a link that keeps lines whole
  device::WindowLayout layout{};
};

/// A row of the built-in table: up to this many bytes, this way.
struct TuningRow {
  std::uint64_t up_to_bytes;
  Algorithm algorithm;
  Protocol protocol;
};

/// @param wanted kAuto: by the table
/// @return the path; protocol kAuto if the wanted one is not permitted
Path plan_call(const PlanBasis& basis, std::uint64_t bytes, Algorithm wanted_algorithm,
               Protocol wanted_protocol) noexcept;

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_PLAN_HPP_
