// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Rounds as they are laid out, a step a lane, against the plain walk over chunks: whatever the number of lanes.
#include "device/ring/step.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace ringbell::device {
namespace {

constexpr WindowLayout kLayout = window_layout(1920, 4, 3);

/// A rank in the middle of its life, and one call.
struct StepTest : testing::Test {
  WorkerContext ctx{};
  Operation op{};
  std::vector<std::byte> windows = std::vector<std::byte>(2 * kLayout.window_bytes());
  Link links[kWireFormats];
  std::uint64_t first_ = 0;

  void set_up(std::uint32_t world, std::uint32_t index, Protocol protocol, std::uint64_t bytes, std::uint32_t chunk) {
    ctx.world = world;
    ctx.rank = ctx.ring_index = index;
    ctx.ring_next = (index + 1) % world;
    ctx.ring_prev = (index + world - 1) % world;
    device::set_layout(&ctx, kLayout);
    for (std::uint32_t r = 0; r < world; ++r)
      ctx.window[r] = windows.data() + (r == index ? kLayout.window_bytes() : 0);
    for (unsigned wire = 0; wire < kWireFormats; ++wire) links[wire] = make_link(ctx, wire);
    op.command.protocol = protocol;
    op.command.chunk_bytes = chunk;
    op.bytes = bytes;
  }

  Round lay_out(std::uint64_t offset, Epochs epochs, unsigned lanes) {
    Round round{};
    for (unsigned lane = 0; lane < lanes; ++lane) {
      lay_out_round(ctx, op, links, offset, epochs, &round, lane, lanes);
    }
    return round;
  }

  /// Walks the whole call, lane by lane where the product's lanes go at once.
  void check(Epochs epochs, unsigned lanes) {
    first_ = epochs.recv;
    const unsigned wire = wire_index(op.command.protocol);
    const Link& link = links[wire];
    std::uint64_t offset = 0;
    std::uint32_t unfinished = 0;  // steps that pass something on, after the one that says it is the last
    bool received = false;
    bool last = false;
    while (!last) {
      ASSERT_LT(offset, op.bytes);
      const Round round = lay_out(offset, epochs, lanes);
      const auto chunk =
          static_cast<std::uint32_t>(round_chunk_bytes(op.bytes, offset, op.command.chunk_bytes, ctx.world));
      std::uint32_t number = 0;
      for (std::uint32_t k = 0; k < ring_steps(ctx.world); ++k) {
        const ByteRange range = chunk_range(op.bytes, offset, chunk, ring_chunk(ctx.ring_index, k, ctx.world));
        if (range.bytes == 0) continue;
        ASSERT_LT(number, round.steps);
        const Step& step = round.step[number++];
        ASSERT_EQ(step.verb, ring_verb(k, ctx.world));
        ASSERT_EQ(step.bytes, range.bytes);
        ASSERT_EQ(step.begin, range.begin);
        if (has(step.verb, Verb::kPass)) {
          ASSERT_EQ(step.send_epoch, epochs.send);
          ASSERT_EQ(step.to, link.send_slots + epochs.send % link.slots * link.slot_bytes);
          ASSERT_EQ(step.send_flag, wire_flag(wire, epochs.send));
          ASSERT_EQ(unfinished, 0u) << "passes something on after its last";
          if (step.last_out) ++unfinished;
          ++epochs.send;
        } else {
          ASSERT_FALSE(step.last_out);
        }
        if (has(step.verb, Verb::kRecv)) {
          ASSERT_EQ(step.recv_epoch, epochs.recv);
          ASSERT_EQ(step.from, link.recv_slots + epochs.recv % link.slots * link.slot_bytes);
          ASSERT_EQ(step.recv_flag, wire_flag(wire, epochs.recv));
          ASSERT_EQ(step.first_in, !received);
          received = true;
          ASSERT_EQ(step.clean, wire == 0 && ll_must_clean(epochs.recv, link.slots));
          ++epochs.recv;
        } else {
          ASSERT_FALSE(step.first_in);
        }
      }
      ASSERT_EQ(round.steps, number);
      if (round.plain) {
        ASSERT_TRUE(offset == 0 && round.last);
        for (std::uint32_t i = 0; i < number; ++i) {
          ASSERT_FALSE(has(round.step[i].verb, Verb::kRecv) && round.step[i].clean);
        }
      } else if (first_ < 100) {
        ASSERT_FALSE(offset == 0 && round.last);
      }
      ASSERT_EQ(round.epochs.send, epochs.send);
      ASSERT_EQ(round.epochs.recv, epochs.recv);
      offset += std::uint64_t{ctx.world} * chunk;
      ASSERT_EQ(round.end, offset);
      last = round.last;
      ASSERT_EQ(last, offset >= op.bytes);
      if (!last) {
        ASSERT_EQ(round.steps, ring_steps(ctx.world)) << "a round before the last has no empty chunk";
      }
    }
    ASSERT_EQ(unfinished, 1u) << "no step says that it is the last to pass anything on";
  }
};

TEST_F(StepTest, RoundsAreThePlainWalk) {
  for (std::uint32_t world = 2; world <= kMaxRanks; ++world) {
    for (std::uint32_t index = 0; index < world; ++index) {
      for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
        for (const std::uint64_t bytes :
             {1ull, 8ull, 16ull, 17ull, 33ull, 100ull, 1920ull, 1921ull, 15'361ull, 99'999ull}) {
          for (const std::uint32_t chunk : {16u, 240u, 1920u}) {
            for (const std::uint64_t first : {0ull, (1ull << 31) - 3, (1ull << 32) - 3, (1ull << 33) + 5}) {
              set_up(world, index, protocol, bytes, chunk);
              ASSERT_NO_FATAL_FAILURE(check({first, first + 2}, world % 2 == 0 ? 1 : 32))
                  << world << " ranks, position " << index << ", " << bytes << " bytes in chunks of " << chunk
                  << ", first epoch " << first;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringbell::device
