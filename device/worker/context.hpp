// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything a worker is given at launch, and what it keeps between launches. Trivially copyable: on CUDA it is the
// kernel's argument. Pointers are valid where the worker runs.
#ifndef RINGBELL_DEVICE_WORKER_CONTEXT_HPP_
#define RINGBELL_DEVICE_WORKER_CONTEXT_HPP_

#include <type_traits>

#include "device/layout/control.hpp"
#include "device/layout/window.hpp"

namespace ringbell::device {

/// Slot uses of one connection and wire format; free-running.
struct Epochs {
  std::uint64_t send;
  std::uint64_t recv;
};

/// memory: the rank's own device memory (process memory on CPU). writer and reader: its worker; survives parking.
struct alignas(kCacheLineBytes) Persistent {
  std::uint64_t next_seq;  // of the host queue
  std::uint64_t op_index;  // operations that exchanged headers
  std::uint64_t generation;
  std::uint64_t direct_epoch;  // uses of the direct algorithms' slot sets, whatever the wire format
  Epochs epochs[kWireFormats];
};

/// Word by word: a copy in one piece passes through 32 registers, which the worker's loop has not. Called by `lanes`
/// lanes: from device memory one lane alone waits a microsecond for one word after the other.
RINGBELL_HD inline void copy_persistent(const Persistent& from, Persistent* to, unsigned lane = 0, unsigned lanes = 1) {
  const auto* source = reinterpret_cast<const std::uint64_t*>(&from);
  auto* target = reinterpret_cast<std::uint64_t*>(to);
  RINGBELL_ROLLED
  for (unsigned i = lane; i < sizeof(Persistent) / 8; i += lanes) target[i] = source[i];
}

/// Where the direct algorithms' slots of one wire format lie, in bytes of a window.
struct DirectRegion {
  std::uint32_t first;       // set 0, source 0
  std::uint32_t slot_bytes;  // from source to source
  std::uint32_t set_bytes;   // from set to set
};

RINGBELL_HD inline DirectRegion direct_region(const WindowLayout& layout, unsigned wire) {
  return {static_cast<std::uint32_t>(layout.direct_slot(wire, 0, 0)),
          static_cast<std::uint32_t>(layout.direct_slot_bytes_of(wire)),
          static_cast<std::uint32_t>(layout.direct_set_bytes(wire))};
}

struct WorkerContext {
  std::uint32_t rank;
  std::uint32_t world;
  std::uint32_t ring_prev;   // rank that sends to this one
  std::uint32_t ring_next;   // rank that this one sends to
  std::uint32_t ring_index;  // position on the ring; chunks are numbered by it
  std::uint32_t queue_depth;
  WindowLayout layout;                // set it by set_layout
  DirectRegion direct[kWireFormats];  // from the layout: many instructions on the worker, none here
  std::uint32_t way;                  // kHostWay or kStreamWay
  ControlBlock* control;              // host memory
  CommandSlot* queue;                 // host memory
  Completion* completions;            // host memory
  Persistent* persistent;             // own memory
  std::byte* window[kMaxRanks];       // the way's region of every rank's window, as mapped here; [rank] is the own one
  std::uint64_t idle_park_ns;
  std::uint64_t lease_ns;
  std::uint64_t timeout_ns;  // of one wait inside an operation; 0 = for ever
};
static_assert(std::is_trivially_copyable_v<WorkerContext>);

RINGBELL_HD inline void set_layout(WorkerContext* ctx, const WindowLayout& layout) {
  ctx->layout = layout;
  for (unsigned wire = 0; wire < kWireFormats; ++wire) ctx->direct[wire] = direct_region(layout, wire);
}

/// The context of the stream way, from the host way's. What launched calls keep is in their LaunchedState.
RINGBELL_HD inline WorkerContext stream_context(const WorkerContext& host) {
  WorkerContext ctx = host;
  ctx.way = kStreamWay;
  ctx.queue = nullptr;
  ctx.completions = nullptr;
  ctx.persistent = nullptr;
  ctx.lease_ns = ~0ull;  // a launch is one call
  for (std::uint32_t rank = 0; rank < host.world; ++rank)
    ctx.window[rank] = host.window[rank] + host.layout.way_bytes();
  return ctx;
}

inline constexpr unsigned kHeaderWords = 10;

/// What one operation needs besides the context; the same in every lane.
struct Operation {
  Command command;
  std::uint64_t seq;
  std::uint64_t index;  // op_index: header flag and parity
  std::uint64_t bytes;
  std::uint32_t step;                  // ring step, for reports
  std::uint32_t header[kHeaderWords];  // what this rank tells the others; see header.hpp
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_WORKER_CONTEXT_HPP_
