// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's control bytes from outside: what has completed and what is queued, over laps of the queue and its flags; why
// it broke.
#include "runtime/control_view.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "device/mem/ops_cpu.hpp"
#include "device/queue/producer.hpp"
#include "runtime/failure_facts.hpp"

namespace ringbell {
namespace {

using device::CpuOps;

class ControlViewTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kDepth = 8;
  ControlViewTest() : view_(view_control(bytes_, kDepth)) {}
  void publish(std::uint64_t seq, bool whole = true) {
    device::Command command{};
    command.kind = device::CommandKind::kAllReduce;
    command.count = seq + 1;
    auto* const queue = const_cast<device::CommandSlot*>(view_.queue);
    if (whole) return device::publish_command<CpuOps>(queue, kDepth, seq, command);
    (void)device::publish_all_but_last<CpuOps>(queue, kDepth, seq, command);
  }
  void complete(std::uint64_t seq, Status status = Status::kOk) {
    const_cast<device::Completion&>(view_.completions[seq % kDepth]).word = device::completion_word(seq, status);
  }
  device::ControlBlock& control() { return const_cast<device::ControlBlock&>(*view_.control); }

  alignas(device::kPageBytes) std::byte bytes_[device::control_bytes(kDepth)] = {};
  ControlView view_;
  device::Command command_{};
};

TEST_F(ControlViewTest, OfAFreshRankNothingIsQueuedOrComplete) {
  EXPECT_EQ(completed_calls(view_), 0u);
  EXPECT_EQ(queued_call(view_, 0, &command_), Queued::kNothing);
  EXPECT_EQ(failure_facts(control(), 0, 0, 0).status, Status::kOk);
}

TEST_F(ControlViewTest, CountsOverLapsAndAtTheFlagsWrap) {
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{0xffffffff} - 20, std::uint64_t{1} << 40}) {
    for (std::uint64_t seq = start; seq < start + 40; ++seq) {
      publish(seq);
      EXPECT_EQ(queued_call(view_, seq, &command_), Queued::kWhole) << seq;
      EXPECT_EQ(command_.count, seq + 1);
      EXPECT_EQ(queued_call(view_, seq + 1, &command_), Queued::kNothing) << seq;
      complete(seq);
      EXPECT_EQ(completed_calls(view_), seq + 1);
    }
  }
}

TEST_F(ControlViewTest, ACallThatAStreamHasStillToMakeWholeIsTold) {
  publish(0);
  complete(0);
  publish(1, false);
  EXPECT_EQ(queued_call(view_, 1, &command_), Queued::kAfterStream);
  EXPECT_EQ(command_.count, 2u);
  publish(1);
  EXPECT_EQ(queued_call(view_, 1, &command_), Queued::kWhole);
}

TEST_F(ControlViewTest, ACallThatFailedIsNotAmongThoseThatEndedWell) {
  complete(0);
  complete(1);
  complete(2, Status::kMismatch);
  EXPECT_EQ(completed_calls(view_), 2u);
  // Garbage where a line of another slot would lie.
  const_cast<device::Completion&>(view_.completions[5]).word = device::completion_word(70, Status::kOk);
  EXPECT_EQ(completed_calls(view_), 2u);
}

TEST_F(ControlViewTest, AFailureIsThatOfTheWorkerOfEitherWayElseOfTheHost) {
  control().control.abort_code = device::abort_code(Status::kPeerLost, 1, 2);
  FailureFacts facts = failure_facts(control(), 1, 7, 0);
  EXPECT_EQ(facts.status, Status::kPeerLost);
  EXPECT_EQ(facts.seq, 7u);
  EXPECT_EQ(facts.peer, 2);
  EXPECT_NE(facts.text.find("rank 2 is gone"), std::string::npos);

  device::WaitRecord& launched = control().way[device::kStreamWay].failure;
  launched.status = Status::kTimeout;
  launched.seq = 3;
  launched.reporter = 1;
  launched.peer = 0;
  launched.what = device::WaitFor::kHeader;
  launched.valid = 4;
  facts = failure_facts(control(), 1, 7, 1'000'000'000);
  EXPECT_EQ(facts.status, Status::kTimeout);
  EXPECT_TRUE(facts.launched);
  EXPECT_EQ(facts.awaited, "header");
  EXPECT_NE(facts.text.find("launched call 3"), std::string::npos) << facts.text;

  device::WaitRecord& record = control().way[device::kHostWay].failure;
  record = launched;
  record.seq = 9;
  record.valid = 10;
  facts = failure_facts(control(), 1, 7, 1'000'000'000);
  EXPECT_FALSE(facts.launched);
  EXPECT_EQ(facts.seq, 9u);
}

}  // namespace
}  // namespace ringbell
