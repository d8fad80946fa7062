// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which evidence makes a segment live, dead or unclear: every rule beside the one that it must not beat.
#include "host/segment_judgement.hpp"

#include <gtest/gtest.h>

#include "host/liveness.hpp"

namespace ringbell::host {
namespace {

/// A complete segment of two ranks that died a minute ago.
SegmentEvidence dead_pair() {
  SegmentEvidence evidence;
  evidence.complete = true;
  evidence.age_s = 60;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    OwnerEvidence& owner = evidence.owner[rank];
    owner.claimed = true;
    owner.pid = static_cast<std::uint32_t>(101 + rank);
    owner.has_beaten = true;
    owner.heartbeat_age_ns = 60'000'000'000;
  }
  return evidence;
}

void expect(const SegmentEvidence& evidence, SegmentState state, bool settled, const std::string& words) {
  const SegmentVerdict verdict = judge_segment(evidence);
  EXPECT_EQ(segment_state_name(verdict.state), std::string(segment_state_name(state))) << verdict.why;
  EXPECT_EQ(verdict.settled, settled) << verdict.why;
  EXPECT_NE(verdict.why.find(words), std::string::npos) << verdict.why;
  EXPECT_FALSE(verdict.removed);
}

void expect_kept_by_who_has_it_open(SegmentEvidence evidence) {
  evidence.open_by = OpenBy::kVisible;
  evidence.open_pid = 5;
  expect(evidence, SegmentState::kLive, false, "process 5 has it open");
}

TEST(SegmentJudgement, WithoutLockBeatAndDescriptorItIsStaleAndItsOwnersAreNamed) {
  expect(dead_pair(), SegmentState::kStale, true, "gone: rank 0 (pid 101), rank 1 (pid 102)");
  SegmentEvidence nobody = dead_pair();
  nobody.owner = {};
  expect(nobody, SegmentState::kStale, true, "before any rank came");
  SegmentEvidence other = nobody;
  other.layout_version = kSegmentLayoutVersion + 1;
  expect(other, SegmentState::kStale, true, "layout version 3, this library's is 2");
}

TEST(SegmentJudgement, OneLockIsEnoughWhateverElseIsOldOrUnknown) {
  for (std::size_t rank = 0; rank < kMaxRanks; ++rank) {
    for (const bool complete : {true, false}) {
      SegmentEvidence evidence = dead_pair();
      evidence.complete = complete;
      evidence.layout_version = 77;
      evidence.owner[rank].lock_free = false;
      expect(evidence, SegmentState::kLive, true,
             "its rank " + std::to_string(rank) + " is alive (in another PID namespace)");
      evidence.owner[rank].lock_holder = 12;
      expect(evidence, SegmentState::kLive, true, "its rank " + std::to_string(rank) + " is alive (pid 12)");
    }
  }
}

TEST(SegmentJudgement, AHalfMadeOneIsLeftToItsMakerForASecond) {
  SegmentEvidence evidence;
  evidence.age_s = kYoungSegmentSeconds * 0.9;
  expect(evidence, SegmentState::kTooEarly, false, "it was made just now");
  evidence.age_s = kYoungSegmentSeconds;
  expect(evidence, SegmentState::kHalfMade, true, "its maker died before it was ready");
  expect_kept_by_who_has_it_open(evidence);
}

TEST(SegmentJudgement, AFreshHeartbeatWithoutALockWaitsForASecondLook) {
  SegmentEvidence evidence = dead_pair();
  evidence.owner[1].heartbeat_age_ns = kHeartbeatStaleNs;
  expect(evidence, SegmentState::kTooEarly, false, "its rank 1 beat just now");
  evidence.owner[1].heartbeat_age_ns = kHeartbeatStaleNs + 1;
  expect(evidence, SegmentState::kStale, true, "gone");
  evidence.owner[1].heartbeat_age_ns = 0;
  evidence.owner[1].has_beaten = false;
  expect(evidence, SegmentState::kStale, true, "gone");
}

TEST(SegmentJudgement, WhoeverHasItOpenKeepsItEvenUnseen) {
  SegmentEvidence evidence = dead_pair();
  evidence.open_by = OpenBy::kInvisible;
  expect(evidence, SegmentState::kUnclear, false, "cannot be seen from here has it open");
  expect_kept_by_who_has_it_open(evidence);
}

TEST(SegmentJudgement, WithoutTheKernelsWordAHiddenOwnerIsUnclearUnlessItSaidThatItEnds) {
  SegmentEvidence evidence = dead_pair();
  evidence.open_by = OpenBy::kNobodySeen;
  expect(evidence, SegmentState::kStale, true, "gone");
  evidence.owner[1].hidden = true;
  expect(evidence, SegmentState::kUnclear, true, "rank 1 (pid 102 of another PID namespace");
  evidence.owner[1].ended = true;
  expect(evidence, SegmentState::kStale, true, "gone");
  evidence.owner[1].ended = false;
  evidence.open_by = OpenBy::kNobody;
  expect(evidence, SegmentState::kStale, true, "gone");
}

TEST(SegmentJudgement, OnlyStaleAndHalfMadeAreDead) {
  for (const auto state : {SegmentState::kGone, SegmentState::kLive, SegmentState::kTooEarly, SegmentState::kUnclear,
                           SegmentState::kForeign, SegmentState::kStranger}) {
    EXPECT_FALSE(is_dead(state)) << segment_state_name(state);
  }
  EXPECT_TRUE(is_dead(SegmentState::kStale));
  EXPECT_TRUE(is_dead(SegmentState::kHalfMade));
}

}  // namespace
}  // namespace ringbell::host
