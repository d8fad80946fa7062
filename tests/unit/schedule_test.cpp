// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The ring schedule as arithmetic: a run of it without memory reduces every chunk once from every rank, and chunks
// cover a message without gap or overlap.
#include "device/ring/schedule.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace ringbell::device {
namespace {

// The two halves of a ring, as they are usually told.
std::uint32_t reduce_scatter_chunk(std::uint32_t index, std::uint32_t step, std::uint32_t world) {
  return (index + 2 * world - 1 - step) % world;
}
std::uint32_t all_gather_chunk(std::uint32_t index, std::uint32_t step, std::uint32_t world) {
  return (index + 2 * world - step) % world;
}

TEST(Schedule, RingStepsAreReduceScatterThenAllGather) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    for (std::uint32_t p = 0; p < world; ++p) {
      for (std::uint32_t step = 0; step < world; ++step) {
        EXPECT_EQ(ring_chunk(p, step, world), reduce_scatter_chunk(p, step, world));
      }
      for (std::uint32_t step = 1; step < world; ++step) {
        EXPECT_EQ(ring_chunk(p, world - 1 + step, world), all_gather_chunk(p, step, world));
      }
    }
  }
}

TEST(Schedule, FilledStepsAreCounted) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    for (std::uint32_t filled = 1; filled <= world; ++filled) {
      for (std::uint32_t p = 0; p < world; ++p) {
        std::uint32_t expected = 0;
        for (std::uint32_t step = 0; step < ring_steps(world); ++step) {
          if (ring_chunk(p, step, world) < filled) expected |= 1u << step;
        }
        ASSERT_EQ(filled_steps(p, filled, world), expected) << world << " ranks, position " << p << ", " << filled;
      }
    }
  }
}

TEST(Schedule, FilledChunksAreCounted) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    for (const std::uint32_t chunk : {16u, 240u, 64u << 20}) {
      for (std::uint64_t left = 1; left <= std::uint64_t{world} * chunk; left += 1 + left / 3) {
        std::uint32_t expected = 0;
        for (std::uint32_t c = 0; c < world; ++c) expected += std::uint64_t{c} * chunk < left ? 1 : 0;
        ASSERT_EQ(filled_chunks(static_cast<std::uint32_t>(left), chunk), expected) << left;
      }
    }
  }
}

TEST(Schedule, EveryChunkEndsWithEveryRankOnce) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    // have[p][c]: a bit for each rank whose input is in position p's partial sum of chunk c.
    std::vector<std::vector<unsigned>> have(world, std::vector<unsigned>(world, 0));
    for (std::uint32_t p = 0; p < world; ++p) have[p][reduce_scatter_chunk(p, 0, world)] = 1u << p;
    for (std::uint32_t step = 1; step < world; ++step) {
      const auto before = have;
      for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint32_t chunk = reduce_scatter_chunk(p, step, world);
        const std::uint32_t sender = (p + world - 1) % world;
        ASSERT_EQ(chunk, reduce_scatter_chunk(sender, step - 1, world))
            << "what the sender sent is not what p receives";
        ASSERT_EQ(before[sender][chunk] & 1u << p, 0u) << "folded twice";
        have[p][chunk] = before[sender][chunk] | 1u << p;
      }
    }
    const unsigned all = (1u << world) - 1;
    for (std::uint32_t p = 0; p < world; ++p) {
      ASSERT_EQ(have[p][p], all);
      ASSERT_EQ(all_gather_chunk(p, 0, world), p);
    }
    for (std::uint32_t step = 1; step < world; ++step) {
      for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint32_t chunk = all_gather_chunk(p, step, world);
        ASSERT_EQ(chunk, all_gather_chunk((p + world - 1) % world, step - 1, world));
        have[p][chunk] = all;
      }
    }
    for (std::uint32_t p = 0; p < world; ++p) {
      for (std::uint32_t c = 0; c < world; ++c) ASSERT_EQ(have[p][c], all) << "position " << p << ", chunk " << c;
    }
  }
}

TEST(Schedule, FirstFoldIsWhoSendsTheChunkAtStepZero) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    for (std::uint32_t p = 0; p < world; ++p) EXPECT_EQ(first_fold(reduce_scatter_chunk(p, 0, world), world), p);
  }
}

TEST(Schedule, ChunksCoverTheMessageInOrder) {
  for (std::uint32_t world = 2; world <= 8; ++world) {
    for (const std::uint64_t chunk_bytes : {16ull, 240ull, 61440ull}) {
      for (const std::uint64_t bytes :
           {1ull, 15ull, 16ull, 17ull, 100ull, 239ull, 240ull, 4096ull, 61441ull, 1'000'003ull}) {
        std::uint64_t at = 0;
        for (std::uint64_t offset = 0; offset < bytes;) {
          const std::uint64_t chunk = round_chunk_bytes(bytes, offset, chunk_bytes, world);
          ASSERT_GT(chunk, 0u);
          ASSERT_LE(chunk, chunk_bytes);
          ASSERT_EQ(chunk % 16, 0u) << "a chunk would begin unaligned";
          for (std::uint32_t c = 0; c < world; ++c) {
            const ByteRange range = chunk_range(bytes, offset, chunk, c);
            if (range.bytes != 0) {
              ASSERT_EQ(range.begin, at);
            }
            ASSERT_LE(range.bytes, chunk);
            at += range.bytes;
          }
          offset += world * chunk;
        }
        ASSERT_EQ(at, bytes) << "world " << world << ", chunk " << chunk_bytes;
      }
    }
  }
}

TEST(Schedule, LengthsNearTheEndOf64BitsDoNotWrap) {
  const std::uint64_t bytes = ~0ull - 7;
  const std::uint64_t offset = bytes / (8 * 61440) * (8 * 61440);
  const std::uint64_t chunk = round_chunk_bytes(bytes, offset, 61440, 8);
  std::uint64_t at = offset;
  for (std::uint32_t c = 0; c < 8; ++c) at += chunk_range(bytes, offset, chunk, c).bytes;
  EXPECT_EQ(at, bytes);
}

}  // namespace
}  // namespace ringbell::device
