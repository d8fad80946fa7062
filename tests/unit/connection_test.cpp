// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Credits: when a sender may fill its next slot, at every place where a counter wraps.
#include "device/protocol/connection.hpp"

#include <gtest/gtest.h>

namespace ringbell::device {
namespace {

TEST(HasRoom, WhileFewerThanAllSlotsAreFilled) {
  for (const std::uint64_t consumed : {0ull, (1ull << 31) - 1, (1ull << 32) - 1, (1ull << 63) - 1, ~0ull}) {
    for (const std::uint64_t slots : {2ull, 8ull}) {
      for (std::uint64_t filled = 0; filled < slots; ++filled)
        EXPECT_TRUE(has_room(consumed + filled, consumed, slots));
      EXPECT_FALSE(has_room(consumed + slots, consumed, slots));
    }
  }
}

// A lane without a line in the slot may look after the slot was freed.
TEST(HasRoom, WhenTheReceiverIsAheadOfALateLane) {
  EXPECT_TRUE(has_room(7, 8, 2));
  EXPECT_TRUE(has_room(~0ull, 0, 2));
}

}  // namespace
}  // namespace ringbell::device
