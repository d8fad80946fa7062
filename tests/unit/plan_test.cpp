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
  return {world, device, true, device::window_layout(slot_bytes, 8, world)};
}
Path plan(const PlanBasis& b, std::uint64_t bytes, Protocol protocol = Protocol::kAuto) {
  return plan_call(b, bytes, Algorithm::kAuto, protocol);
}

TEST(Plan, TheTablesSwitchJustBehindTheirRows) {
  const auto expect = [](const PlanBasis& b, std::uint64_t bytes, Algorithm algorithm, Protocol protocol) {
    EXPECT_EQ(plan(b, bytes).algorithm, algorithm) << bytes;
    EXPECT_EQ(plan(b, bytes).protocol, protocol) << bytes;
  };
  const PlanBasis cpu = basis(2);
  expect(cpu, 0, Algorithm::kOneShot, Protocol::kLL);
  expect(cpu, 4 << 10, Algorithm::kOneShot, Protocol::kLL);
  expect(cpu, (4 << 10) + 1, Algorithm::kRing, Protocol::kLL);
  expect(cpu, 16 << 10, Algorithm::kRing, Protocol::kLL);
  expect(cpu, (16 << 10) + 1, Algorithm::kRing, Protocol::kSimple);
  const PlanBasis two = basis(2, DeviceKind::kCuda);
  expect(two, 8, Algorithm::kOneShot, Protocol::kLL);
  expect(two, 3840, Algorithm::kOneShot, Protocol::kLL);
  expect(two, 3841, Algorithm::kRing, Protocol::kLL);
  expect(two, 8 << 10, Algorithm::kRing, Protocol::kLL);
  expect(two, (8 << 10) + 1, Algorithm::kOneShot, Protocol::kSimple);
  expect(two, (32 << 10) + 1, Algorithm::kRing, Protocol::kSimple);
  expect(two, std::uint64_t{1} << 40, Algorithm::kRing, Protocol::kSimple);
  const PlanBasis three = basis(3, DeviceKind::kCuda);
  expect(three, 3840, Algorithm::kOneShot, Protocol::kLL);
  expect(three, 32 << 10, Algorithm::kRing, Protocol::kLL);
  expect(three, (32 << 10) + 1, Algorithm::kRing, Protocol::kSimple);
}

TEST(Plan, WhatIsAskedForNarrowsTheChoiceToTheRowsThatAgree) {
  const PlanBasis b = basis(2, DeviceKind::kCuda);
  EXPECT_EQ(plan_call(b, 8, Algorithm::kRing, Protocol::kAuto).protocol, Protocol::kLL);
  EXPECT_EQ(plan_call(b, 20 << 10, Algorithm::kRing, Protocol::kAuto).protocol, Protocol::kSimple);
  EXPECT_EQ(plan_call(b, 20 << 10, Algorithm::kAuto, Protocol::kLL).algorithm, Algorithm::kRing);
  EXPECT_EQ(plan_call(b, 8, Algorithm::kAuto, Protocol::kSimple).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(plan_call(b, 1 << 20, Algorithm::kOneShot, Protocol::kAuto).protocol, Protocol::kSimple);
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
        const Path path = plan_call(basis(world, DeviceKind::kCpu, slot), bytes, Algorithm::kRing, Protocol::kAuto);
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

TEST(Plan, OneShotChunksAreWholeQuadsThatFitASlotOfTheDirectAlgorithmsAndAreEvenlySpread) {
  for (std::uint32_t world = 1; world <= 8; ++world) {
    for (std::uint32_t slot : {1920u, 61440u, 8388480u}) {
      const PlanBasis b = basis(world, DeviceKind::kCpu, slot);
      for (std::uint64_t bytes : {0ull, 1ull, 16ull, 17ull, 1919ull, 1920ull, 61441ull, 1ull << 30, (1ull << 62) + 1}) {
        const Path path = plan_call(b, bytes, Algorithm::kOneShot, Protocol::kLL);
        EXPECT_EQ(path.algorithm, Algorithm::kOneShot);
        EXPECT_EQ(path.chunk_bytes % 16, 0u);
        EXPECT_GE(path.chunk_bytes, 16u);
        EXPECT_LE(path.chunk_bytes, b.layout.direct_slot_bytes);
        const std::uint64_t fewest = (bytes + b.layout.direct_slot_bytes - 1) / b.layout.direct_slot_bytes;
        EXPECT_EQ((bytes + path.chunk_bytes - 1) / path.chunk_bytes, fewest) << "not one round more than needed";
      }
    }
  }
}

TEST(Plan, AskedForAlgorithmsAreTakenAtEverySize) {
  for (Algorithm algorithm : {Algorithm::kRing, Algorithm::kOneShot}) {
    for (std::uint64_t bytes : {0ull, 1ull, 1ull << 20, 1ull << 40}) {
      EXPECT_EQ(plan_call(basis(3), bytes, algorithm, Protocol::kAuto).algorithm, algorithm);
    }
  }
}

// Chunks of all rounds tile the message: no byte twice, none left out, none in a chunk larger than planned.
TEST(Plan, TheRingsChunksTileEveryMessage) {
  for (std::uint32_t world : {2u, 3u, 5u, 8u}) {
    for (std::uint64_t bytes = 1; bytes < 30000; bytes += bytes < 300 ? 1 : 997) {
      const std::uint64_t planned =
          plan_call(basis(world, DeviceKind::kCpu, 1920), bytes, Algorithm::kRing, Protocol::kAuto).chunk_bytes;
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
