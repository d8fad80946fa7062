// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner: same answer on every rank, limits of a chunk, the table's edges.
#include "runtime/plan.hpp"

#include <gtest/gtest.h>

#include "device/ring/schedule.hpp"

namespace ringbell {
namespace {

PlanBasis basis(std::uint32_t world, DeviceKind device = DeviceKind::kCpu, std::uint32_t slot_bytes = 61440) {
  return {world, device, true, device::WindowLayout{slot_bytes, 8, 1}};
}
Path plan(const PlanBasis& b, std::uint64_t bytes, Protocol protocol = Protocol::kAuto) {
  return plan_call(b, bytes, Algorithm::kAuto, protocol);
}

TEST(Plan, TheTablesSwitchProtocolJustBehindTheirRows) {
  EXPECT_EQ(plan(basis(2), 0).protocol, Protocol::kLL);
  EXPECT_EQ(plan(basis(2), 16 << 10).protocol, Protocol::kLL);
  EXPECT_EQ(plan(basis(2), (16 << 10) + 1).protocol, Protocol::kSimple);
  const PlanBasis cuda = basis(2, DeviceKind::kCuda);
  EXPECT_EQ(plan(cuda, 8).protocol, Protocol::kLL);
  EXPECT_EQ(plan(cuda, 32 << 10).protocol, Protocol::kLL);
  EXPECT_EQ(plan(cuda, (32 << 10) + 1).protocol, Protocol::kSimple);
  EXPECT_EQ(plan(cuda, std::uint64_t{1} << 40).protocol, Protocol::kSimple);
}

TEST(Plan, WithoutLeaveForLL128ItIsNeverPickedAndAskingForItIsRefused) {
  PlanBasis b = basis(2, DeviceKind::kCuda);
  b.ll128_permitted = false;
  for (std::uint64_t bytes = 1; bytes < (std::uint64_t{1} << 34); bytes *= 3) {
    EXPECT_NE(plan(b, bytes).protocol, Protocol::kLL128) << bytes;
    EXPECT_NE(plan(b, bytes).protocol, Protocol::kAuto) << bytes;
  }
  EXPECT_EQ(plan(b, 8, Protocol::kLL128).protocol, Protocol::kAuto);
  EXPECT_EQ(plan(b, 8, Protocol::kLL).protocol, Protocol::kLL);
}

TEST(Plan, AskedForProtocolsAreTakenAtEverySize) {
  for (Protocol protocol : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
    for (std::uint64_t bytes : {0ull, 1ull, 1ull << 20, 1ull << 40})
      EXPECT_EQ(plan(basis(3), bytes, protocol).protocol, protocol);
  }
}

TEST(Plan, ChunksAreWholeQuadsThatFitASlotAndCoverSmallMessagesInOneRound) {
  for (std::uint32_t world = 1; world <= 8; ++world) {
    for (std::uint32_t slot : {1920u, 61440u, 8388480u}) {
      for (std::uint64_t bytes :
           {0ull, 1ull, 15ull, 16ull, 17ull, 1919ull, 1920ull, 61441ull, 1ull << 30, (1ull << 62) + 1, ~0ull >> 1}) {
        const Path path = plan(basis(world, DeviceKind::kCpu, slot), bytes);
        EXPECT_EQ(path.algorithm, Algorithm::kRing);
        EXPECT_EQ(path.channels, 1u);
        EXPECT_EQ(path.chunk_bytes % 16, 0u);
        EXPECT_GE(path.chunk_bytes, 16u);
        EXPECT_LE(path.chunk_bytes, slot);
        if (bytes <= std::uint64_t{slot} * world) {
          EXPECT_GE(std::uint64_t{path.chunk_bytes} * world, bytes) << "one round is enough";
        } else {
          EXPECT_EQ(path.chunk_bytes, slot);
        }
      }
    }
  }
}

// Chunks of all rounds tile the message: no byte twice, none left out, none in a chunk larger than planned.
TEST(Plan, TheRingsChunksTileEveryMessage) {
  for (std::uint32_t world : {2u, 3u, 5u, 8u}) {
    for (std::uint64_t bytes = 1; bytes < 30000; bytes += bytes < 300 ? 1 : 997) {
      const std::uint64_t planned = plan(basis(world, DeviceKind::kCpu, 1920), bytes).chunk_bytes;
      std::uint64_t next = 0;
      for (std::uint64_t offset = 0; offset < bytes;) {
        const std::uint64_t chunk = device::round_chunk_bytes(bytes, offset, planned, world);
        ASSERT_LE(chunk, planned);
        for (std::uint32_t c = 0; c < world; ++c) {
          const device::ByteRange range = device::chunk_range(bytes, offset, chunk, c);
          ASSERT_TRUE(range.bytes == 0 || range.begin == next) << bytes;
          next += range.bytes;
        }
        offset += world * chunk;
      }
      ASSERT_EQ(next, bytes);
    }
  }
}

}  // namespace
}  // namespace ringbell
