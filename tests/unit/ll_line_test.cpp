// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Flags of LL and LL128 lines: never zero, never that of the slot's last use, clean when they come round.
#include "device/layout/ll_line.hpp"

#include <gtest/gtest.h>

#include "device/layout/ll128_line.hpp"

namespace ringbell::device {
namespace {

constexpr std::uint64_t kPeriod = 0xffffffff;
constexpr std::uint64_t kStarts[] = {0, (1ull << 31) - 20, kPeriod - 20, (1ull << 32) - 20, 7 * kPeriod - 20};

TEST(LlLine, PayloadComesBackWhole) {
  for (const std::uint64_t payload : {0ull, ~0ull, 0x0123456789abcdefull, 0x00000001ffffffffull}) {
    for (const std::uint32_t flag : {1u, 0x80000000u, 0xffffffffu}) {
      const LlWords words = ll_pack(payload, flag);
      EXPECT_EQ(ll_payload(words), payload);
      EXPECT_TRUE(ll_word_ready(words.word[0], flag) && ll_word_ready(words.word[1], flag));
      EXPECT_FALSE(ll_word_ready(words.word[0], flag ^ 1));
      EXPECT_FALSE(ll_word_ready(words.word[1], flag - 1));
    }
  }
}

TEST(LlLine, FlagIsNeverZeroAndNeverThatOfARecentEpoch) {
  for (const std::uint64_t start : kStarts) {
    for (std::uint64_t epoch = start; epoch < start + 40; ++epoch) {
      EXPECT_NE(ll_flag(epoch), 0u);
      EXPECT_FALSE(ll_word_ready(0, ll_flag(epoch))) << "zeroed memory would be a line";
      for (std::uint64_t later = 1; later <= 16; ++later) EXPECT_NE(ll_flag(epoch), ll_flag(epoch + later));
    }
  }
}

TEST(LlLine, EverySlotIsCleanedOnceBeforeTheFlagComesRound) {
  for (const std::uint64_t slots : {2ull, 8ull}) {
    for (const std::uint64_t turn : {kPeriod, 2 * kPeriod}) {
      unsigned cleaned = 0;
      for (std::uint64_t epoch = turn - 3 * slots; epoch < turn + 3 * slots; ++epoch) {
        if (!ll_must_clean(epoch, slots)) continue;
        EXPECT_GE(epoch, turn - slots);
        EXPECT_LT(epoch, turn);
        cleaned |= 1u << epoch % slots;
      }
      EXPECT_EQ(cleaned, (1u << slots) - 1);
    }
  }
}

TEST(Ll128Line, FlagCarriesAll64Bits) {
  for (const std::uint64_t start : kStarts) {
    EXPECT_EQ(ll128_flag(start), start + 1);
    EXPECT_NE(ll128_flag(start), ll128_flag(start + kPeriod)) << "a lap of the LL flag is none of this one";
  }
}

}  // namespace
}  // namespace ringbell::device
