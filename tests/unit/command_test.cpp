// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Commands go through four quads whole; a quad of another lap is none; words of completion, state and abort come apart
// as they were put together.
#include "device/layout/command.hpp"

#include <gtest/gtest.h>

#include "device/layout/control.hpp"

namespace ringbell::device {
namespace {

Command any_command(std::uint64_t seed) {
  Command c{};
  c.in = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(0x7f0123456789abcdull * (seed | 1)));
  c.out = reinterpret_cast<void*>(static_cast<std::uintptr_t>(0xfedcba9876543210ull ^ seed));
  c.count = 0xfffffffe00000001ull - seed;
  c.tag = 0x8000000000000000ull + seed;
  c.chunk_bytes = 0xfffffff0u;
  c.kind = CommandKind::kAllReduce;
  c.flags = 0xff;
  c.dtype = DType::kUInt64;
  c.op = ReduceOp::kAvg;
  c.algorithm = Algorithm::kRing;
  c.protocol = Protocol::kSimple;
  c.channels = 0xffff;
  return c;
}

TEST(Command, EveryFieldComesBack) {
  for (const std::uint64_t seed : {0ull, 1ull, 0x123456789ull}) {
    const Command c = any_command(seed);
    Quad quad[kCommandQuads];
    for (unsigned i = 0; i < kCommandQuads; ++i) quad[i] = command_pack(c, i, 0xffffffff);
    const Command back = command_unpack(quad);
    EXPECT_EQ(back.in, c.in);
    EXPECT_EQ(back.out, c.out);
    EXPECT_EQ(back.count, c.count);
    EXPECT_EQ(back.tag, c.tag);
    EXPECT_EQ(back.chunk_bytes, c.chunk_bytes);
    EXPECT_EQ(back.kind, c.kind);
    EXPECT_EQ(back.flags, c.flags);
    EXPECT_EQ(back.dtype, c.dtype);
    EXPECT_EQ(back.op, c.op);
    EXPECT_EQ(back.algorithm, c.algorithm);
    EXPECT_EQ(back.protocol, c.protocol);
    EXPECT_EQ(back.channels, c.channels);
  }
}

TEST(Command, QuadIsReadyForItsOwnSequenceOnly) {
  for (const std::uint64_t start : {0ull, (1ull << 31) - 4, 0xffffffffull - 4, (1ull << 32) - 4}) {
    for (std::uint64_t seq = start; seq < start + 8; ++seq) {
      for (unsigned i = 0; i < kCommandQuads; ++i) {
        const Quad quad = command_pack(any_command(seq), i, command_flag(seq));
        EXPECT_TRUE(command_quad_ready(quad, command_flag(seq)));
        EXPECT_FALSE(command_quad_ready(Quad{}, command_flag(seq))) << "zeroed memory would be a command";
        for (std::uint64_t laps = 2; laps <= 4096; laps *= 2) {
          EXPECT_FALSE(command_quad_ready(quad, command_flag(seq + laps)))
              << "the slot's last lap would be taken again";
        }
      }
    }
  }
}

TEST(Command, CompletionWordTellsSequenceAndStatus) {
  for (const std::uint64_t seq : {0ull, (1ull << 32) - 1, (1ull << 55)}) {
    for (int status = 0; status < kStatusCount; ++status) {
      const std::uint64_t word = completion_word(seq, static_cast<Status>(status));
      EXPECT_NE(word, 0u);
      EXPECT_EQ(word >> 8, seq + 1);
      EXPECT_EQ(completion_status(word), static_cast<Status>(status));
    }
  }
}

TEST(Control, StateAndAbortWordsComeApart) {
  const std::uint64_t word = state_word((1ull << 47) - 1, Residency::kBroken, ParkReason::kExit);
  EXPECT_EQ(state_generation(word), (1ull << 47) - 1);
  EXPECT_EQ(state_residency(word), Residency::kBroken);
  EXPECT_EQ(state_reason(word), ParkReason::kExit);
  EXPECT_EQ(state_residency(0), Residency::kParked) << "zeroed memory is a worker that was never launched";
  const std::uint64_t code = abort_code(Status::kMismatch, 7, 3);
  EXPECT_NE(code, 0u);
  EXPECT_EQ(abort_status(code), Status::kMismatch);
  EXPECT_EQ(abort_reporter(code), 7u);
  EXPECT_EQ(abort_peer(code), 3u);
}

TEST(Control, QueueAndCompletionsFollowTheBlock) {
  for (const std::uint64_t depth : {1ull, 2ull, 64ull, 4096ull}) {
    EXPECT_GE(queue_offset(), sizeof(ControlBlock));
    EXPECT_EQ(completions_offset(depth), queue_offset() + depth * sizeof(CommandSlot));
    EXPECT_GE(control_bytes(depth), completions_offset(depth) + depth * sizeof(Completion));
    EXPECT_EQ(control_bytes(depth) % kPageBytes, 0u);
  }
}

}  // namespace
}  // namespace ringbell::device
