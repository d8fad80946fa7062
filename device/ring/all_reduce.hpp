// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ring AllReduce over any wire format: reduce-scatter, then all-gather, world - 1 steps each, round after round.
#ifndef RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_
#define RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_

#include "device/protocol/ll.hpp"
#include "device/protocol/ll128.hpp"
#include "device/protocol/simple.hpp"

namespace ringbell::device {

/// The verbs of a ring step; each is one pass over one chunk. An empty chunk is no step: both ends know its size.
template <class P>
class RingSteps {
 public:
  RINGBELL_TARGET RingSteps(P& protocol, const std::byte* in, std::byte* out) : p_(protocol), in_(in), out_(out) {}

  RINGBELL_TARGET Status send(ByteRange range, ReduceRule rule) {
    return range.bytes == 0 ? Status::kOk : p_.template move<false, true, false, true>(in_, out_, range, rule);
  }
  RINGBELL_TARGET Status recv_reduce_send(ByteRange range, ReduceRule rule) {
    return range.bytes == 0 ? Status::kOk : p_.template move<true, true, false, true>(in_, out_, range, rule);
  }
  RINGBELL_TARGET Status recv_reduce_copy_send(ByteRange range, ReduceRule rule) {
    return range.bytes == 0 ? Status::kOk : p_.template move<true, true, true, true>(in_, out_, range, rule);
  }
  RINGBELL_TARGET Status recv_copy_send(ByteRange range, ReduceRule rule) {
    return range.bytes == 0 ? Status::kOk : p_.template move<true, false, true, true>(in_, out_, range, rule);
  }
  RINGBELL_TARGET Status recv_copy(ByteRange range, ReduceRule rule) {
    return range.bytes == 0 ? Status::kOk : p_.template move<true, false, true, false>(in_, out_, range, rule);
  }

 private:
  P& p_;
  const std::byte* in_;
  std::byte* out_;
};

/// Runs the operation in g.shared().op. `in` may equal `out`: a chunk of `out` is written only after this rank's input
/// of that chunk went into the ring. world >= 2.
template <class Protocol, class M, Group G>
RINGBELL_TARGET Status ring_all_reduce(const WorkerContext& ctx, G& g) {
  Operation& op = g.shared().op;
  const Command command = op.command;
  const std::uint32_t world = ctx.world;
  const std::uint64_t bytes = op.bytes;
  Protocol protocol(ctx, g);
  RingSteps<Protocol> ring(protocol, static_cast<const std::byte*>(command.in), static_cast<std::byte*>(command.out));
  const ReduceRule fold{command.dtype, command.op, 0};
  const ReduceRule last_fold{command.dtype, command.op, command.op == ReduceOp::kAvg ? world : 0};

  Status status = Status::kOk;
  std::uint32_t steps = 0;
  const auto next_step = [&] {
    ++steps;
    if (g.lane() == 0) op.step = steps;  // told when a wait is slow or fails
  };
  for (std::uint64_t offset = 0; offset < bytes && status == Status::kOk;) {
    const std::uint64_t chunk = round_chunk_bytes(bytes, offset, command.chunk_bytes, world);
    const auto range = [&](std::uint32_t c) { return chunk_range(bytes, offset, chunk, c); };

    next_step();
    status = ring.send(range(reduce_scatter_chunk(ctx.ring_index, 0, world)), fold);
    for (std::uint32_t step = 1; step + 1 < world && status == Status::kOk; ++step) {
      next_step();
      status = ring.recv_reduce_send(range(reduce_scatter_chunk(ctx.ring_index, step, world)), fold);
    }
    if (status != Status::kOk) break;
    next_step();
    status = ring.recv_reduce_copy_send(range(reduce_scatter_chunk(ctx.ring_index, world - 1, world)), last_fold);
    for (std::uint32_t step = 1; step + 1 < world && status == Status::kOk; ++step) {
      next_step();
      status = ring.recv_copy_send(range(all_gather_chunk(ctx.ring_index, step, world)), fold);
    }
    if (status != Status::kOk) break;
    next_step();
    status = ring.recv_copy(range(all_gather_chunk(ctx.ring_index, world - 1, world)), fold);
    offset += std::uint64_t{world} * chunk;
  }
  protocol.save();
  return status;
}

/// world == 1: a copy.
template <class M, Group G>
RINGBELL_TARGET void copy_through(G& g) {
  const Operation& op = g.shared().op;
  const auto* in = static_cast<const std::byte*>(op.command.in);
  auto* out = static_cast<std::byte*>(op.command.out);
  if (in == out) return;
  for (std::uint64_t at = g.lane() * kQuadBytes; at < op.bytes; at += g.lanes() * kQuadBytes) {
    const unsigned valid = valid_bytes(op.bytes, at, kQuadBytes);
    store_pack16<M>(out + at, load_pack16<M>(in + at, valid), valid);
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_RING_ALL_REDUCE_HPP_
