// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's side of the queue, one thread: what goes into a slot, and who may launch in each state. Races between
// threads are the explorer's (tests/sched).
#include "device/queue/producer.hpp"

#include <gtest/gtest.h>

#include "device/mem/ops_cpu.hpp"

namespace ringbell::device {
namespace {

TEST(Producer, CommandLandsInItsSlotWithItsFlag) {
  CommandSlot queue[4] = {};
  Command command{};
  command.count = 77;
  command.kind = CommandKind::kAllReduce;
  for (const std::uint64_t seq : {0ull, 3ull, 4ull, (1ull << 32) - 1, 1ull << 32, (1ull << 40) + 2}) {
    publish_command<CpuOps>(queue, 4, seq, command);
    const CommandSlot& slot = queue[seq % 4];
    for (const Quad& quad : slot.quad) EXPECT_TRUE(command_quad_ready(quad, command_flag(seq))) << "seq " << seq;
    EXPECT_EQ(command_unpack(slot.quad).count, 77u);
  }
}

TEST(Producer, OnlyAParkedWorkerMayBeLaunchedAndOnce) {
  StateLine line{};
  std::uint64_t launched = 0;
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kMine) << "zeroed: never launched";
  EXPECT_EQ(launched, 1u);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kNotNeeded) << "the launch is under way";
  line.state = state_word(1, Residency::kRunning, ParkReason::kNone);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kNotNeeded);
  line.state = state_word(1, Residency::kParking, ParkReason::kIdle);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kUnresolved);
  line.state = state_word(1, Residency::kParked, ParkReason::kIdle);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kMine);
  EXPECT_EQ(launched, 2u);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kNotNeeded);
  line.state = state_word(2, Residency::kBroken, ParkReason::kNone);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kBroken);
}

TEST(Producer, AFailedLaunchIsGivenBack) {
  StateLine line{};
  line.state = state_word(5, Residency::kParked, ParkReason::kLease);
  std::uint64_t launched = 5;
  ASSERT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kMine);
  give_back_launch<CpuOps>(&launched, 6);
  EXPECT_EQ(launched, 5u);
  EXPECT_EQ(claim_launch<CpuOps>(&line, &launched), LaunchRight::kMine);
}

}  // namespace
}  // namespace ringbell::device
