// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which chunk a ring position handles at which step, and where chunks lie in the message. Pure arithmetic.
//
// A message is cut into rounds of `world` chunks. In a round, reduce-scatter takes world - 1 steps and all-gather
// another world - 1. Position p first sends chunk p - 1; the chunk that returns to it whole first is chunk p.
#ifndef RINGBELL_DEVICE_RING_SCHEDULE_HPP_
#define RINGBELL_DEVICE_RING_SCHEDULE_HPP_

#include "device/config.hpp"

namespace ringbell::device {

/// Chunk that position `index` takes at step 0 .. ring_steps - 1 of a round: every step goes one chunk back.
RINGBELL_HD constexpr std::uint32_t ring_chunk(std::uint32_t index, std::uint32_t step, std::uint32_t world) {
  const std::uint32_t chunk = index + 2 * world - 1 - step;  // below 3 * world
  return chunk >= 2 * world ? chunk - 2 * world : chunk >= world ? chunk - world : chunk;
}

/// What a step does with its chunk, as a set; a verb is one pass over the chunk.
enum class Verb : std::uint8_t {
  kNone = 0,
  kRecv = 1,  // takes the chunk from the previous rank
  kOwn = 2,   // starts from the own input, or folds it in
  kOut = 4,   // keeps the result in `out`
  kPass = 8,  // passes it to the next rank
  kSend = kOwn | kPass,
  kRecvReduceSend = kRecv | kOwn | kPass,
  kRecvReduceCopySend = kRecv | kOwn | kOut | kPass,
  kRecvCopySend = kRecv | kOut | kPass,
  kRecvCopy = kRecv | kOut,
};
RINGBELL_HD constexpr bool has(Verb verb, Verb part) {
  return (static_cast<unsigned>(verb) & static_cast<unsigned>(part)) != 0;
}

/// Steps of a round: reduce-scatter in the first `world`, then all-gather.
RINGBELL_HD constexpr std::uint32_t ring_steps(std::uint32_t world) { return 2 * world - 1; }
RINGBELL_HD constexpr Verb ring_verb(std::uint32_t step, std::uint32_t world) {
  if (step == 0) return Verb::kSend;
  if (step + 1 < world) return Verb::kRecvReduceSend;
  if (step + 1 == world) return Verb::kRecvReduceCopySend;
  return step + 1 < ring_steps(world) ? Verb::kRecvCopySend : Verb::kRecvCopy;
}

/// Position whose input is folded first into `chunk`: the order is first, first + 1, ... around the ring.
RINGBELL_HD constexpr std::uint32_t first_fold(std::uint32_t chunk, std::uint32_t world) { return (chunk + 1) % world; }

/// In 32 bits where they do: a GPU divides those many times faster.
RINGBELL_HD constexpr std::uint64_t ceil_divide(std::uint64_t value, std::uint32_t divisor) {
  if (value < 0x80000000u) return (static_cast<std::uint32_t>(value) + divisor - 1) / divisor;
  return (value + divisor - 1) / divisor;
}

/// Bytes of a chunk of the round that starts at `offset`: the planned size, or less in a last round that is not the
/// first (whoever planned a call of one round has spread it evenly).
RINGBELL_HD constexpr std::uint64_t round_chunk_bytes(std::uint64_t bytes, std::uint64_t offset,
                                                      std::uint64_t chunk_bytes, std::uint32_t world) {
  const std::uint64_t left = bytes - offset;
  if (offset == 0 || left >= chunk_bytes * world) return chunk_bytes;
  return (ceil_divide(left, world) + 15) / 16 * 16;  // not more: left is less than `world` chunks of a multiple of 16
}

struct ByteRange {
  std::uint64_t begin;
  std::uint64_t bytes;
};

/// Chunk `chunk` of that round, cut at the end of the message; may be empty.
RINGBELL_HD constexpr ByteRange chunk_range(std::uint64_t bytes, std::uint64_t offset, std::uint64_t round_chunk,
                                            std::uint32_t chunk) {
  const std::uint64_t begin = offset + chunk * round_chunk;
  if (begin >= bytes) return {bytes, 0};
  return {begin, bytes - begin < round_chunk ? bytes - begin : round_chunk};
}

/// Chunks of a round that hold anything, the first ones. @param left bytes of the round, at most `world` chunks; not 0
RINGBELL_HD constexpr std::uint32_t filled_chunks(std::uint32_t left, std::uint32_t chunk_bytes) {
  std::uint32_t filled = 1;
  RINGBELL_UNROLL
  for (std::uint32_t chunk = 1; chunk < kMaxRanks; ++chunk) filled += chunk * chunk_bytes < left ? 1 : 0;
  return filled;
}

/// The steps of position `index` whose chunk is one of the first `filled`: bit `step` for each.
RINGBELL_HD constexpr std::uint32_t filled_steps(std::uint32_t index, std::uint32_t filled, std::uint32_t world) {
  // Steps take chunks downwards, around and around: chunks as bits from the highest down, three times, from the first.
  const std::uint32_t down = ((1u << filled) - 1) << (world - filled);
  const std::uint32_t first = world - 1 - ring_chunk(index, 0, world);
  return (down | down << world | down << 2 * world) >> first & ((1u << ring_steps(world)) - 1);
}

static_assert(ring_chunk(1, 0, 4) == 0 && ring_chunk(0, 0, 4) == 3 && ring_chunk(1, 4, 4) == 0);
// Every step's receive is the previous position's send of the step before.
static_assert(ring_chunk(1, 1, 4) == ring_chunk(0, 0, 4) && ring_chunk(0, 6, 4) == ring_chunk(3, 5, 4));
static_assert(ring_chunk(2, 3, 4) == 2);  // after world - 1 steps position p holds chunk p whole
static_assert(ring_verb(0, 2) == Verb::kSend && ring_verb(1, 2) == Verb::kRecvReduceCopySend);
static_assert(ring_verb(2, 2) == Verb::kRecvCopy && ring_verb(1, 3) == Verb::kRecvReduceSend);
static_assert(first_fold(2, 4) == 3 && ring_chunk(3, 0, 4) == 2);
static_assert(chunk_range(100, 0, 32, 3).bytes == 4 && chunk_range(100, 0, 64, 3).bytes == 0);
static_assert(filled_chunks(100, 32) == 4 && filled_chunks(96, 32) == 3 && filled_chunks(1, 16) == 1);
static_assert(filled_steps(1, 4, 4) == 0x7f && filled_steps(0, 1, 2) == 0b010 && filled_steps(1, 1, 2) == 0b101);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_RING_SCHEDULE_HPP_
