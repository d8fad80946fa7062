// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// No two things of a window overlap, each begins at its alignment, and slots are taken in turn also across a wrap.
#include "device/layout/window.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ringbell::device {
namespace {

struct Part {
  std::uint64_t begin;
  std::uint64_t bytes;
  std::string name;
};

std::vector<Part> parts_of(const WindowLayout& layout) {
  std::vector<Part> parts;
  for (unsigned source = 0; source < kMaxRanks; ++source) {
    for (unsigned way = 0; way < kWays; ++way) {
      parts.push_back({WindowLayout::abort_offset(source, way), sizeof(AbortLine), "abort"});
    }
    for (unsigned parity = 0; parity < 2; ++parity) {
      parts.push_back({WindowLayout::header_offset(source, parity), sizeof(HeaderLine), "header"});
    }
  }
  for (unsigned channel = 0; channel < layout.channels; ++channel) {
    parts.push_back({layout.tail_offset(channel), sizeof(TailLine), "tail"});
    for (unsigned wire = 0; wire < kWireFormats; ++wire) {
      parts.push_back({layout.credit_offset(channel, wire), sizeof(CreditLine), "credit"});
      for (unsigned slot = 0; slot < layout.slots; ++slot) {
        const std::uint64_t bytes = wire == 0   ? layout.ll_slot_bytes()
                                    : wire == 1 ? layout.ll128_slot_bytes()
                                                : layout.slot_bytes;
        parts.push_back({layout.slot(wire, channel, slot), bytes, "slot of format " + std::to_string(wire)});
      }
    }
  }
  for (unsigned source = 0; source < layout.ranks; ++source) {
    parts.push_back({layout.direct_tail_offset(source), sizeof(TailLine), "direct tail"});
    for (unsigned wire = 0; wire < kWireFormats; ++wire) {
      for (unsigned set = 0; set < kDirectSets; ++set) {
        parts.push_back({layout.direct_slot(wire, set, source), layout.direct_slot_bytes_of(wire),
                         "slot, direct, of format " + std::to_string(wire)});
      }
    }
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
  return parts;
}

TEST(Window, PartsAreDisjointAndAligned) {
  for (const WindowLayout layout :
       {window_layout(kDefaultSlotBytes, kDefaultSlots, 8), window_layout(1920, 2, 2),
        WindowLayout{1920, 4, 3, 1920, 5}, WindowLayout{480, 2, 1, 480, 3}, WindowLayout{3840, 8, 8, 1920, 8}}) {
    const std::vector<Part> parts = parts_of(layout);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::uint64_t end = parts[i].begin + parts[i].bytes;
      EXPECT_LE(end, i + 1 < parts.size() ? parts[i + 1].begin : layout.total_bytes())
          << parts[i].name << " at " << parts[i].begin << " runs into what follows";
      const bool is_line = parts[i].name.rfind("slot", 0) != 0 || parts[i].name.back() == '1';
      EXPECT_EQ(parts[i].begin % (is_line ? 128 : 16), 0u) << parts[i].name << " at " << parts[i].begin;
    }
  }
}

TEST(Window, SlotsHoldAWholeChunk) {
  const WindowLayout layout = window_layout(1920, 2, 2);
  EXPECT_EQ(layout.ll_slot_bytes() / sizeof(LlLine) * kLlPayloadBytes, layout.slot_bytes);
  EXPECT_EQ(layout.ll128_slot_bytes() / kLl128LineBytes * kLl128PayloadBytes, layout.slot_bytes);
}

TEST(Window, EpochsTakeSlotsInTurnAcrossWraps) {
  const WindowLayout layout = window_layout(1920, 4, 4);
  for (const std::uint64_t start : {0ull, (1ull << 31) - 2, (1ull << 32) - 2, ~0ull - 1}) {
    for (unsigned wire = 0; wire < kWireFormats; ++wire) {
      for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(layout.slot(wire, 0, start + i), layout.slot(wire, 0, (start + i) % 4));
      }
      EXPECT_NE(layout.slot(wire, 0, start), layout.slot(wire, 0, start + 1));
    }
  }
}

TEST(Window, HeaderSetsAlternate) {
  EXPECT_EQ(WindowLayout::header_offset(3, 6), WindowLayout::header_offset(3, ~0ull - 1));
  EXPECT_NE(WindowLayout::header_offset(3, 6), WindowLayout::header_offset(3, 7));
}

}  // namespace
}  // namespace ringbell::device
