// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's control bytes, read by somebody who has no part in them: what is queued, what has completed. In the segment,
// or in a copy of it.
#ifndef RINGBELL_RUNTIME_CONTROL_VIEW_HPP_
#define RINGBELL_RUNTIME_CONTROL_VIEW_HPP_

#include <cstddef>
#include <cstdint>

#include "device/layout/control.hpp"

namespace ringbell {

struct ControlView {
  const device::ControlBlock* control;
  const device::CommandSlot* queue;
  const device::Completion* completions;
  std::uint32_t depth;
};

/// @param bytes device::control_bytes(depth), aligned as a page
ControlView view_control(const std::byte* bytes, std::uint32_t depth) noexcept;

/// Calls of the queue that ended well: also the number of the next one.
std::uint64_t completed_calls(const ControlView& view) noexcept;

enum class Queued : std::uint8_t {
  kNothing,
  kAfterStream,  ///< all but what a stream has still to store
  kWhole,
};
/// Is call `seq` in its slot? @param command set unless kNothing
Queued queued_call(const ControlView& view, std::uint64_t seq, device::Command* command) noexcept;

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_CONTROL_VIEW_HPP_
