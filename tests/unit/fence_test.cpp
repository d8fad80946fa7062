// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The two-phase fence with ranks as threads: order, late, failing, absent and doubled ranks, and sessions one after
// another under one name. Processes that die are tests/process/segment_process_test.cpp.
#include "host/fence.hpp"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/ringbell_error.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

constexpr SegmentGeometry kGeometry{kPageBytes, kPageBytes};

struct Outcome {
  Status status = Status::kOk;
  std::string text;
};

/// Runs `body` as every rank of `ranks` at once.
std::vector<Outcome> run_ranks(const std::vector<int>& ranks, const std::function<void(int)>& body) {
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        body(ranks[i]);
      } catch (const Error& error) {
        outcomes[i] = {error.status(), error.what()};
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  return ranks;
}

bool name_exists(const UniqueId& id) {
  struct stat info {};
  return lstat(("/dev/shm" + unique_id_segment_name(id)).c_str(), &info) == 0;
}

class FenceWorldTest : public ::testing::TestWithParam<int> {};

TEST_P(FenceWorldTest, WhatIsWrittenBeforeAPhaseIsSeenAfterIt) {
  const int world = GetParam();
  const UniqueId id = unique_id_create();
  std::atomic<int> opened{0};
  const auto outcomes = run_ranks(all_ranks(world), [&](int rank) {
    Segment segment = Segment::create_or_open(id, rank, world, kGeometry, Deadline::after_seconds(30));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    segment.card(rank).config_hash = 1000u + static_cast<unsigned>(rank);
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
    for (int peer = 0; peer < world; ++peer)
      EXPECT_EQ(segment.card(peer).config_hash, 1000u + static_cast<unsigned>(peer));
    ++opened;
    fence.publish(Phase::kOpened);
    fence.wait_all(Phase::kOpened, Deadline::after_seconds(30));
    EXPECT_EQ(opened.load(), world);
    EXPECT_FALSE(name_exists(id)) << "the name is gone before anybody goes on";
    fence.publish(Phase::kClosed);
    std::string why;
    EXPECT_EQ(fence.try_wait_all(Phase::kClosed, Deadline::after_seconds(30), &why), Status::kOk) << why;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, Status::kOk) << outcome.text;
}
INSTANTIATE_TEST_SUITE_P(Worlds, FenceWorldTest, ::testing::Range(1, kMaxRanks + 1));

/// Set-up up to the first fence.
void come_together(const UniqueId& id, int rank, int world) {
  Segment segment = Segment::create_or_open(id, rank, world, kGeometry, Deadline::after_seconds(30));
  Liveness liveness(segment);
  Fence fence(segment, liveness);
  fence.publish(Phase::kWritten);
  fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
}

TEST(FenceTest, ManySessionsInARowUnderOneName) {
  const UniqueId id = unique_id_from_key("fence_test " + std::to_string(getpid()));
  const int world = 3;
  const auto outcomes = run_ranks(all_ranks(world), [&](int rank) {
    std::vector<Segment> alive;  // older sessions stay open: they must not be joined again
    for (int session = 0; session < 40; ++session) {
      alive.push_back(Segment::create_or_open(id, rank, world, kGeometry, Deadline::after_seconds(30)));
      Segment& segment = alive.back();
      Liveness liveness(segment);
      Fence fence(segment, liveness);
      segment.card(rank).config_hash = static_cast<unsigned>(session);
      fence.publish(Phase::kWritten);
      fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
      for (int peer = 0; peer < world; ++peer)
        ASSERT_EQ(segment.card(peer).config_hash, static_cast<unsigned>(session));
      fence.publish(Phase::kOpened);
      fence.wait_all(Phase::kOpened, Deadline::after_seconds(30));
    }
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, Status::kOk) << outcome.text;
  EXPECT_FALSE(name_exists(id));
}

TEST(FenceTest, ALateRankIsWaitedForWithinTheDeadline) {
  const UniqueId id = unique_id_create();
  const auto outcomes = run_ranks({0, 1}, [&](int rank) {
    if (rank == 1) usleep(300'000);
    Segment segment = Segment::create_or_open(id, rank, 2, kGeometry, Deadline::after_seconds(30));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
    fence.publish(Phase::kOpened);
    fence.wait_all(Phase::kOpened, Deadline::after_seconds(30));
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, Status::kOk) << outcome.text;
}

TEST(FenceTest, TheDeadlineListsWhoIsAbsentAndHowFarTheyCame) {
  const UniqueId id = unique_id_create();
  const auto start = monotonic_ns();
  std::atomic<int> done{0};
  const auto outcomes = run_ranks({0, 1, 2}, [&](int rank) {
    Segment segment = Segment::create_or_open(id, rank, 4, kGeometry, Deadline::after_seconds(30));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    if (rank == 2) {  // claims, then writes nothing
      while (done.load() < 2) usleep(1000);
      return;
    }
    fence.publish(Phase::kWritten);
    try {
      fence.wait_all(Phase::kWritten, Deadline::after_ns(400'000'000));
    } catch (...) {
      ++done;
      throw;
    }
    ++done;
  });
  for (const int rank : {0, 1}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.status, Status::kTimeout);
    EXPECT_NE(outcome.text.find("2 of 4 ranks did not get to 'written' in "), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 2 (pid " + std::to_string(getpid()) + ") got to 'claimed'"), std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("rank 3 never started"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("RINGBELL_INIT_TIMEOUT_S"), std::string::npos) << outcome.text;
  }
  EXPECT_LT(monotonic_ns() - start, 10 * kNanosPerSecond);
  EXPECT_FALSE(name_exists(id));
}

TEST(FenceTest, AFailingRankEndsEveryOtherOneAtOnceWithItsText) {
  for (const Phase fails_at : {Phase::kClaimed, Phase::kWritten}) {
    const UniqueId id = unique_id_create();
    const auto start = monotonic_ns();
    const auto outcomes = run_ranks({0, 1, 2, 3}, [&](int rank) {
      Segment segment = Segment::create_or_open(id, rank, 4, kGeometry, Deadline::after_seconds(30));
      Liveness liveness(segment);
      Fence fence(segment, liveness);
      if (rank == 2 && fails_at == Phase::kClaimed) {
        fence.fail("no GPU 7 here");
        throw Error(Status::kSystem, "no GPU 7 here");
      }
      fence.publish(Phase::kWritten);
      if (rank == 2) {
        fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
        fence.fail("no GPU 7 here");
        throw Error(Status::kSystem, "no GPU 7 here");
      }
      fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
      fence.publish(Phase::kOpened);
      fence.wait_all(Phase::kOpened, Deadline::after_seconds(30));
    });
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].status, Status::kAborted);
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].text, "rank 2 failed to start: no GPU 7 here");
    }
    EXPECT_LT(monotonic_ns() - start, 10 * kNanosPerSecond);
    EXPECT_FALSE(name_exists(id));
  }
}

TEST(FenceTest, ARankThatGoesAwayWithoutAWordIsAFailureToo) {
  const UniqueId id = unique_id_create();
  const auto outcomes = run_ranks({0, 1}, [&](int rank) {
    Segment segment = Segment::create_or_open(id, rank, 2, kGeometry, Deadline::after_seconds(30));
    if (rank == 1) return;
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
  });
  EXPECT_EQ(outcomes[0].status, Status::kAborted);
  EXPECT_EQ(outcomes[0].text, "rank 1 failed to start: its set-up was given up");
}

TEST(FenceTest, ADoubledRankEndsAllWithItsNumber) {
  const UniqueId id = unique_id_create();
  const auto start = monotonic_ns();
  const auto outcomes = run_ranks({0, 1, 1}, [&](int rank) { come_together(id, rank, 3); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, Status::kInvalidArgument);
    EXPECT_NE(outcome.text.find("rank 1 is claimed twice"), std::string::npos) << outcome.text;
  }
  EXPECT_LT(monotonic_ns() - start, 10 * kNanosPerSecond);
  EXPECT_FALSE(name_exists(id));
}

TEST(FenceTest, ARankThatDisagreesEndsAllThatWaitForItWithItsText) {
  const UniqueId id = unique_id_create();
  const auto start = monotonic_ns();
  const auto outcomes = run_ranks({0, 1, 2}, [&](int rank) { come_together(id, rank, rank == 1 ? 5 : 3); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, Status::kInvalidArgument);
    EXPECT_NE(outcome.text.find("with world 3, rank 1 has 5"), std::string::npos) << outcome.text;
  }
  EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
  EXPECT_FALSE(name_exists(id));
}

TEST(FenceTest, ATimeOutToldByAPeerHasItsRemedyOnce) {
  const UniqueId id = unique_id_create();
  const auto outcomes = run_ranks({0, 1}, [&](int rank) {
    Segment segment = Segment::create_or_open(id, rank, 3, kGeometry, Deadline::after_seconds(30));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, Deadline::after_ns(rank == 0 ? 300'000'000 : 30'000'000'000));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, Status::kTimeout);
    const std::size_t first = outcome.text.find("RINGBELL_INIT_TIMEOUT_S");
    EXPECT_NE(first, std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find("RINGBELL_INIT_TIMEOUT_S", first + 1), std::string::npos) << outcome.text;
  }
}

TEST(FenceTest, ALongErrorTextIsCutAndEnds) {
  const UniqueId id = unique_id_create();
  const auto outcomes = run_ranks({0, 1}, [&](int rank) {
    Segment segment = Segment::create_or_open(id, rank, 2, kGeometry, Deadline::after_seconds(30));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    if (rank == 1)
      fence.fail(std::string(5000, 'x'));
    else
      fence.wait_all(Phase::kWritten, Deadline::after_seconds(30));
  });
  EXPECT_EQ(outcomes[0].text, "rank 1 failed to start: " + std::string(511, 'x'));
}

TEST(FenceTest, TeardownEndsAtItsDeadlineAndCountsFailedRanksAsClosed) {
  const UniqueId id = unique_id_create();
  Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, Deadline::after_seconds(30));
  Segment one = Segment::create_or_open(id, 1, 2, kGeometry, Deadline::after_seconds(30));
  Liveness liveness(zero);
  Fence fence(zero, liveness);
  fence.publish(Phase::kClosed);
  std::string why;
  EXPECT_EQ(fence.try_wait_all(Phase::kClosed, Deadline::after_ns(100'000'000), &why), Status::kTimeout);
  EXPECT_NE(why.find("rank 1"), std::string::npos);
  one.publish_failure("gone");
  EXPECT_EQ(fence.try_wait_all(Phase::kClosed, Deadline::after_seconds(30), nullptr), Status::kOk);
}

}  // namespace
}  // namespace ringbell::host
