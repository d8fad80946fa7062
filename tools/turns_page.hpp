// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What lies in the page where perf's groups take turns. Only turns.cpp and turns_results.cpp look into it.
#ifndef RINGBELL_TOOLS_TURNS_PAGE_HPP_
#define RINGBELL_TOOLS_TURNS_PAGE_HPP_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "device/config.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {

/// A futex, some of them.
using TurnsWord = std::atomic<std::uint32_t>;
static_assert(sizeof(TurnsWord) == 4 && TurnsWord::is_always_lock_free);

inline constexpr std::size_t kAboutBytes = 128;
inline constexpr std::size_t kWhyBytes = 480;
inline constexpr std::size_t kNameBytes = 24;
inline constexpr int kMostGroups = 16;

/// Of one placement of the row that was measured last.
struct PlaceResult {
  std::uint64_t samples;
  std::uint64_t wrong;
  std::uint64_t hash;
  std::uint64_t sent_bytes;
  std::uint32_t measured;  ///< 0: nothing else counts
  std::uint32_t checked;
  std::uint32_t hashed;
  std::uint32_t sent_as_expected;
  std::int32_t channels;
  std::uint32_t chunk_bytes;
  char algorithm[kNameBytes];
  char protocol[kNameBytes];
};

/// What a probe noted for one row of its group. Zero: nothing.
struct NotedPath {
  char algorithm[kNameBytes];
  char protocol[kNameBytes];
};

/// Zeroed memory is a group that nobody has come to.
struct TurnsGroup {
  /// Turns given to it. Written by the conductor; its ranks sleep on it.
  alignas(device::kCacheLineBytes) TurnsWord given;
  std::uint32_t row;  ///< of the turn given last; written before `given`, stays until `done` has caught up
  /// By its ranks. `arrived` counts them at the end of a turn, `done` follows `given`.
  alignas(device::kCacheLineBytes) TurnsWord arrived;
  TurnsWord done;
  TurnsWord ready;  ///< 1: set up, `about` holds
  TurnsWord beats;  ///< changes as long as it moves
  TurnsWord nvls;   ///< by its probe; 1: no, 2: yes
  /// By whoever is first to say so.
  alignas(device::kCacheLineBytes) TurnsWord failing;  ///< 1: somebody writes `why`
  TurnsWord failed;                                    ///< 1: `why` holds
  TurnsWord gone;                                      ///< 1: by the launcher
  TurnsWord probing;         ///< by the launcher; 1 from before the first rank's start to the probe's end
  TurnsWord probe_unwanted;  ///< by the conductor
  char about[kAboutBytes];
  char why[kWhyBytes];
};

/// The times of both placements follow, then a NotedPath for every group and row.
struct TurnsPage {
  alignas(device::kCacheLineBytes) TurnsWord events;  ///< counts what the conductor may wait for; it sleeps here
  TurnsGroup groups[kMostGroups];
  /// By a rank of the group that has the turn; read by the conductor after `done`.
  PlaceResult places[2];
  char refusal[kWhyBytes];
};

template <std::size_t kSize>
void put_text(char (&to)[kSize], std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), size);
  to[size] = 0;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_TURNS_PAGE_HPP_
