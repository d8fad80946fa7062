// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a launched call is given, and what is kept from one to the next. Plain data; the call itself is launched.hpp.
#ifndef RINGBELL_DEVICE_WORKER_LAUNCHED_CALL_HPP_
#define RINGBELL_DEVICE_WORKER_LAUNCHED_CALL_HPP_

#include "device/layout/command.hpp"
#include "device/worker/context.hpp"

namespace ringbell::device {

// LaunchedState::turn. Refused is refused for good; above it the abort_code of the first failure.
inline constexpr std::uint64_t kTurnFree = 0;
inline constexpr std::uint64_t kTurnTaken = 1;
inline constexpr std::uint64_t kTurnClosed = 2;
inline constexpr std::uint64_t kTurnBroken = 3;
inline constexpr std::uint64_t kTurnContested = 4;  // taken, and another launch has asked for it meanwhile
inline constexpr unsigned kTurnCodeShift = 8;

RINGBELL_HD constexpr std::uint64_t broken_turn(std::uint64_t code) { return code << kTurnCodeShift | kTurnBroken; }

/// memory: the rank's own device memory (process memory on CPU); stays while a captured graph may be replayed. writer
/// and reader: the launched call that has the turn. zero: `turn` is free.
struct alignas(kCacheLineBytes) LaunchedState {
  std::uint64_t op_index;
  std::uint64_t direct_epoch;
  Epochs epochs[kWireFormats];
  std::uint64_t turn;  // any launched call, by compare-exchange from kTurnFree (edge kTurn)
};
static_assert(sizeof(LaunchedState) == kCacheLineBytes);

RINGBELL_HD inline LaunchedState launched_state(const Persistent& initial) {
  LaunchedState state{initial.op_index, initial.direct_epoch, {}, kTurnFree};
  for (unsigned wire = 0; wire < kWireFormats; ++wire) state.epochs[wire] = initial.epochs[wire];
  return state;
}

/// What one launch is told. `issue` counts the stream calls of a communicator as the host made them: a graph's node
/// keeps the number it was captured with, so ranks that replay in different orders find out.
struct LaunchedCall {
  Quad command[kCommandQuads];  // command_pack; the flags in it mean nothing
  std::uint64_t issue;
  LaunchedState* state;
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_LAUNCHED_CALL_HPP_
