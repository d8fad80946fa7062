// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's side of the queue: publish a command, then find out whether the worker must be launched. Template over the
// memory operations so that the explorer runs it against the worker's side (worker/park.hpp).
#ifndef RINGBELL_DEVICE_QUEUE_PRODUCER_HPP_
#define RINGBELL_DEVICE_QUEUE_PRODUCER_HPP_

#include "device/layout/control.hpp"
#include "device/mem/ops.hpp"

namespace ringbell::device {

/// The store that makes a command whole. Somebody else's: a stream's, when it has come to the call.
struct LastStore {
  std::uint64_t* word;
  std::uint64_t value;
};

/// All of a command but its last store; the slot is free. Until that is made, neither worker nor park sees more than an
/// empty slot: what is not ready costs nothing in the poll, and holds up no park (command_arriving asks for all four).
template <class M>
LastStore publish_all_but_last(CommandSlot* queue, std::uint32_t depth, std::uint64_t seq, const Command& command) {
  CommandSlot& slot = queue[seq & (depth - 1)];
  const std::uint32_t flag = command_flag(seq);
  constexpr unsigned kLast = kCommandQuads - 1;
  for (unsigned i = 0; i < kLast; ++i) {
    const Quad quad = command_pack(command, i, flag);
    M::store_relaxed(&slot.quad[i].lo, quad.lo);
    M::store_release(&slot.quad[i].hi, quad.hi, Edge::kCommand);
  }
  const Quad last = command_pack(command, kLast, flag);
  M::store_relaxed(&slot.quad[kLast].lo, last.lo);
  return {&slot.quad[kLast].hi, last.hi};
}

/// Stores command `seq` into its slot. The slot must be free: command seq - depth has completed.
template <class M>
void publish_command(CommandSlot* queue, std::uint32_t depth, std::uint64_t seq, const Command& command) {
  const LastStore last = publish_all_but_last<M>(queue, depth, seq, command);
  M::store_release(last.word, last.value, Edge::kCommand);
}

/// Is command `seq` whole?
template <class M>
bool command_is_ready(const CommandSlot* queue, std::uint32_t depth, std::uint64_t seq) {
  const std::uint64_t last = M::load_acquire(&queue[seq & (depth - 1)].quad[kCommandQuads - 1].hi, Edge::kCommand);
  return static_cast<std::uint32_t>(last >> 32) == command_flag(seq);
}

enum class LaunchRight : std::uint8_t {
  kNotNeeded,  // the worker runs, or somebody else launches it
  kMine,       // the caller must launch generation `launched`, or give the right back
  kBroken,     // it will never run again
  kUnresolved  // still PARKING: ask again
};

/// Asks whether this caller must launch. After a publish, call `M::fence_seq_cst(Edge::kPark)` first, once for all
/// commands published. Never blocks.
/// @param launched process memory: newest generation somebody launched or is launching
template <class M>
LaunchRight claim_launch(const StateLine* line, std::uint64_t* launched) {
  const std::uint64_t state = M::load_acquire(&line->state, Edge::kState);
  switch (state_residency(state)) {
    case Residency::kRunning: return LaunchRight::kNotNeeded;
    case Residency::kBroken: return LaunchRight::kBroken;
    case Residency::kParking: return LaunchRight::kUnresolved;
    case Residency::kParked: break;
  }
  const std::uint64_t generation = state_generation(state);
  return M::compare_exchange(launched, generation, generation + 1) ? LaunchRight::kMine : LaunchRight::kNotNeeded;
}

/// A launch that failed: the next caller may try.
template <class M>
void give_back_launch(std::uint64_t* launched, std::uint64_t generation) {
  M::store_release(launched, generation - 1, Edge::kStart);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_QUEUE_PRODUCER_HPP_
