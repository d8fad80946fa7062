// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: sanitize=none
// ringbell-test: name=ci label=ci timeout=600 env=RINGBELL_SEEDS=1000 sanitize=none
// ringbell-test: name=long label=long timeout=7200 env=RINGBELL_SEEDS=20000 sanitize=none
//
// The ring over each wire format, explored: sizes around a line, none at all, in place, chained calls, small types at
// odd addresses, and all formats mixed with parks in between. Fibers: no sanitizer follows them.
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/sched_world.hpp"

namespace ringbell::test {
namespace {

class RingSched : public testing::TestWithParam<std::tuple<Protocol, unsigned, unsigned>> {};

TEST_P(RingSched, EveryScheduleGivesTheSum) {
  const auto [protocol, ranks, lanes] = GetParam();
  // Two lines a chunk, so that two lanes meet.
  const std::uint32_t chunk = protocol == Protocol::kLL128 ? 240 : 32;
  WorldConfig config;
  config.ranks = ranks;
  config.lanes = lanes;
  config.ahead = 2;
  config.calls = {
      {.count = 6, .protocol = protocol},
      {.count = chunk == 240 ? 70ull : 17ull, .protocol = protocol, .chunk_bytes = chunk},
      {.count = 0, .protocol = protocol},
      {.count = 5, .protocol = protocol, .dtype = DType::kUInt32, .in_place = true},
      {.count = 5, .protocol = protocol, .dtype = DType::kUInt32, .of_last_output = true},
      {.count = 1, .protocol = protocol, .dtype = DType::kUInt8, .offset = 1},
      {.count = 19, .protocol = protocol, .dtype = DType::kUInt8, .chunk_bytes = 16, .offset = 3},
  };
  SchedWorld world(config);
  const Outcome outcome = world.explore(first_seed(), seed_count());
  EXPECT_FALSE(outcome.failed) << outcome.report;
}

INSTANTIATE_TEST_SUITE_P(Protocols, RingSched,
                         testing::Combine(testing::Values(Protocol::kLL, Protocol::kLL128, Protocol::kSimple),
                                          testing::Values(2u, 3u), testing::Values(1u, 2u, 4u)));

class MixedSched : public testing::TestWithParam<unsigned> {};

// A change of format from call to call, while workers park idle, by lease and after bursts.
TEST_P(MixedSched, EveryScheduleGivesTheSum) {
  WorldConfig config;
  config.ranks = GetParam();
  config.lanes = 2;
  config.ahead = 2;
  config.service = true;
  config.idle_park_ns = {0, 1000, 100'000'000};
  config.lease_ns = {20'000, 100'000, 1'000'000'000};
  for (std::uint64_t i = 0; i < 12; ++i) {
    config.calls.push_back({.count = 4 + i / 2 % 3,
                            .protocol = static_cast<Protocol>(1 + i / 2 % 3),
                            .in_place = i % 4 == 3,
                            .of_last_output = i % 4 == 1,
                            .flags = i % 5 == 4 ? device::kFlagLastOfBurst : std::uint8_t{0}});
  }
  SchedWorld world(config);
  const Outcome outcome = world.explore(first_seed(), seed_count());
  EXPECT_FALSE(outcome.failed) << outcome.report;
  if (outcome.seeds >= 100) {
    EXPECT_GT(outcome.launches, 3 * outcome.seeds) << "workers hardly parked: the unit explores less than it says";
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MixedSched, testing::Values(2u, 3u));

}  // namespace
}  // namespace ringbell::test
