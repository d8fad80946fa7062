// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/fault_spec.hpp"

#include <string>

#include <gtest/gtest.h>

#include "device/ringbell_error.hpp"

namespace ringbell::host {
namespace {

using device::FaultKind;

TEST(FaultSpec, NamesOnePublishOfOneRank) {
  const device::FaultPlan plan = parse_fault("flip:rank=1:publish=1000", 1);
  EXPECT_EQ(plan.kind, FaultKind::kFlip);
  EXPECT_EQ(plan.publish, 1000u);
  EXPECT_EQ(plan.published, 0u);
  EXPECT_EQ(parse_fault("flip:rank=1:publish=1000", 0).kind, FaultKind::kNone);
  EXPECT_EQ(parse_fault("", 0).kind, FaultKind::kNone);
}

TEST(FaultSpec, DelayAndTearTakeATimeAndAll) {
  const device::FaultPlan delay = parse_fault("delay:us=250:rank=0:publish=all", 0);
  EXPECT_EQ(delay.kind, FaultKind::kDelay);
  EXPECT_EQ(delay.publish, 0u);
  EXPECT_EQ(delay.delay_ns, 250'000u);
  EXPECT_EQ(parse_fault("tear:rank=7:publish=3", 7).delay_ns, 100'000u);
  EXPECT_EQ(parse_fault("drop:rank=7:publish=3", 7).kind, FaultKind::kDrop);
}

TEST(FaultSpec, WhatIsNoFaultIsAnErrorThatNamesIt) {
  for (const char* text :
       {"flop:rank=1:publish=1", "flip", "flip:rank=1", "flip:publish=1", "flip:rank=8:publish=1",
        "flip:rank=1:publish=0", "flip:rank=1:publish=all", "flip:rank=1:publish=-1", "flip:rank=1:publish=1x",
        "flip:rank=:publish=1", "flip:rank=1:publish=1:us=5", "delay:rank=1:publish=1:us=0",
        "delay:rank=1:publish=1:us=99999999", "flip:rank=1:rank=1:publish=1", "flip:rank=1:publish=1:color=2", ":",
        "flip:rank=99999999999999999999:publish=1"}) {
    try {
      static_cast<void>(parse_fault(text, 1));
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
      const std::string what = error.what();
      EXPECT_NE(what.find(text), std::string::npos) << what;
      EXPECT_NE(what.find("flip|drop|delay|tear"), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace ringbell::host
