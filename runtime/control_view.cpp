// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/control_view.hpp"

#include "device/mem/ops_cpu.hpp"

namespace ringbell {

using device::CpuOps;

ControlView view_control(const std::byte* bytes, std::uint32_t depth) noexcept {
  return {reinterpret_cast<const device::ControlBlock*>(bytes),
          reinterpret_cast<const device::CommandSlot*>(bytes + device::queue_offset()),
          reinterpret_cast<const device::Completion*>(bytes + device::completions_offset(depth)), depth};
}

std::uint64_t completed_calls(const ControlView& view) noexcept {
  std::uint64_t completed = 0;
  for (std::uint32_t slot = 0; slot < view.depth; ++slot) {
    const std::uint64_t word = CpuOps::load_acquire(&view.completions[slot].word, device::Edge::kCompletion);
    const std::uint64_t count = device::completion_count(word);
    if (count <= completed || ((count - 1) & (view.depth - 1)) != slot) continue;
    if (device::completion_status(word) == Status::kOk) completed = count;
  }
  return completed;
}

Queued queued_call(const ControlView& view, std::uint64_t seq, device::Command* command) noexcept {
  const device::CommandSlot& slot = view.queue[seq & (view.depth - 1)];
  device::Quad quads[device::kCommandQuads];
  unsigned whole = 0;
  for (unsigned i = 0; i < device::kCommandQuads; ++i) {
    quads[i].hi = CpuOps::load_acquire(&slot.quad[i].hi, device::Edge::kCommand);
    quads[i].lo = CpuOps::load_relaxed(&slot.quad[i].lo);
    if (device::command_quad_ready(quads[i], device::command_flag(seq))) ++whole;
  }
  constexpr unsigned kLast = device::kCommandQuads - 1;
  const bool last = device::command_quad_ready(quads[kLast], device::command_flag(seq));
  if (whole < kLast || (whole == kLast && last)) return Queued::kNothing;
  *command = device::command_unpack(quads);
  return last ? Queued::kWhole : Queued::kAfterStream;
}

}  // namespace ringbell
