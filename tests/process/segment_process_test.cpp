// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Set-up with ranks as processes: worlds 2 to 8, death at each phase, doubled and refused ranks, leftovers, a stopped
// rank. Every case ends with nothing left in /dev/shm. Starts no program.
// ringbell-test: timeout=120
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/set_up_process.hpp"

namespace ringbell::host {
namespace {

class SegmentProcessWorldTest : public ::testing::TestWithParam<int> {};

TEST_P(SegmentProcessWorldTest, AllRanksComeUpAndLeaveNothing) {
  const int world = GetParam();
  const UniqueId id = unique_id_create();
  std::vector<Rank> ranks;
  for (int rank = world - 1; rank >= 0; --rank) ranks.emplace_back([&, rank] { set_up(id, rank, world); });
  for (Rank& rank : ranks) EXPECT_EQ(rank.result(), "");
  EXPECT_FALSE(name_exists(id));
}

TEST_P(SegmentProcessWorldTest, ARankKilledAtAnyPhaseEndsTheOthersByNameAndLeavesNothing) {
  const int world = GetParam();
  for (const Phase phase : {Phase::kClaimed, Phase::kWritten}) {
    for (const int victim : {0, world - 1}) {
      SCOPED_TRACE(std::string(phase_name(phase)) + ", rank " + std::to_string(victim));
      const UniqueId id = unique_id_create();
      std::vector<Rank> ranks;
      for (int rank = 0; rank < world; ++rank) {
        ranks.emplace_back([&, rank] {
          set_up(id, rank, world, kGeometry, [&](Segment& segment, Phase at) {
            if (rank != victim || at != phase) return;
            for (int peer = 0; peer < world; ++peer) {
              while (!segment.is_claimed(peer)) usleep(500);
            }
            raise(SIGKILL);
          });
        });
      }
      const std::string dead = "rank " + std::to_string(victim) + " (pid " +
                               std::to_string(ranks[static_cast<std::size_t>(victim)].pid()) + ") died during set-up";
      const auto start = monotonic_ns();
      for (int rank = 0; rank < world; ++rank) {
        const std::string result = ranks[static_cast<std::size_t>(rank)].result();
        if (rank == victim) {
          EXPECT_EQ(result, "signal 9");
        } else if (phase == Phase::kWritten && result.empty()) {
          ADD_FAILURE() << "a rank came up without the dead one";
        } else {
          EXPECT_HAS(result, status_is(Status::kPeerLost) + dead);
        }
      }
      EXPECT_LT(monotonic_ns() - start, 15 * kNanosPerSecond);
      EXPECT_FALSE(name_exists(id));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, SegmentProcessWorldTest, ::testing::Values(2, 3, 5, 8));

// Rank 2 comes too late for both: the dead one is named, not the one that is merely absent.
TEST(SegmentProcessTest, ARankKilledAfterItHasReachedThePhaseIsNoticedWhileAnotherIsAwaited) {
  for (const int victim : {0, 1}) {
    SCOPED_TRACE("rank " + std::to_string(victim));
    const UniqueId id = unique_id_create();
    const int witness = 1 - victim;
    std::vector<Rank> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        set_up(id, rank, 3, kGeometry, [&](Segment& segment, Phase at) {
          if (rank != victim || at != Phase::kWritten) return;
          while (segment.phase(witness) != Phase::kWritten) usleep(500);
          raise(SIGKILL);
        });
      });
    }
    const std::string dead = "rank " + std::to_string(victim) + " (pid " +
                             std::to_string(ranks[static_cast<std::size_t>(victim)].pid()) + ") died during set-up";
    EXPECT_EQ(ranks[static_cast<std::size_t>(victim)].result(), "signal 9");
    const auto start = monotonic_ns();
    EXPECT_EQ(ranks[static_cast<std::size_t>(witness)].result(), status_is(Status::kPeerLost) + dead);
    EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
    EXPECT_FALSE(name_exists(id));
  }
}

// Rank 2 reaches the last fence only after rank 1 has gone: that was set up and left in order.
TEST(SegmentProcessTest, ARankThatLeftInOrderIsNotTakenForDeadByOneThatIsStillAwaited) {
  const UniqueId id = unique_id_create();
  const auto body = [&](int rank) {
    const auto deadline = Deadline::after_seconds(kInitSeconds);
    Segment segment = Segment::create_or_open(id, rank, 3, kGeometry, deadline);
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, deadline);
    if (rank == 2) {
      while (segment.phase(1) != Phase::kClosed) usleep(500);
      usleep(500'000);
    }
    fence.publish(Phase::kOpened);
    if (rank == 1) return;  // its segment closes itself
    fence.wait_all(Phase::kOpened, deadline);
  };
  std::vector<Rank> ranks;
  for (const int rank : {0, 1, 2}) ranks.emplace_back([&, rank] { body(rank); });
  for (const int rank : {1, 0, 2}) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].result(), "") << rank;
  EXPECT_FALSE(name_exists(id));
}

TEST(SegmentProcessTest, OneRankTwiceIsRefusedByNameOnAll) {
  const UniqueId id = unique_id_create();
  std::vector<Rank> ranks;
  for (const int rank : {0, 1, 1}) ranks.emplace_back([&, rank] { set_up(id, rank, 3); });
  std::vector<pid_t> pids;
  for (const Rank& rank : ranks) pids.push_back(rank.pid());
  for (Rank& rank : ranks) {
    const std::string result = rank.result();
    EXPECT_HAS(result, status_is(Status::kInvalidArgument) + "rank 1 is claimed twice");
    EXPECT_HAS(result, std::to_string(pids[1]));
    EXPECT_HAS(result, std::to_string(pids[2]));
  }
  EXPECT_FALSE(name_exists(id));
}

TEST(SegmentProcessTest, ARankThatDisagreesIsRefusedWithItsValuesOnAllAtOnce) {
  constexpr SegmentGeometry kOther{4 * kPageBytes, 16 * kPageBytes};
  for (const int odd : {0, 1, 2}) {
    for (const bool world_differs : {true, false}) {
      SCOPED_TRACE("rank " + std::to_string(odd) + (world_differs ? ", world" : ", geometry"));
      const UniqueId id = unique_id_create();
      const auto start = monotonic_ns();
      std::vector<Rank> ranks;
      for (int rank = 0; rank < 3; ++rank) {
        ranks.emplace_back([&, rank] {
          const bool is_odd = rank == odd;
          set_up(id, rank, is_odd && world_differs ? 4 : 3, is_odd && !world_differs ? kOther : kGeometry);
        });
      }
      for (Rank& rank : ranks) {
        const std::string result = rank.result();
        EXPECT_HAS(result, status_is(Status::kInvalidArgument) + "rank 0 made segment ");
        EXPECT_HAS(result, world_differs ? (odd == 0 ? "with world 4, rank " : "with world 3, rank ")
                                         : (odd == 0 ? "16384 + 65536, rank " : "8192 + 65536, rank "));
        EXPECT_HAS(result, world_differs ? (odd == 0 ? " has 3" : " has 4")
                                         : (odd == 0 ? " has 8192 + 65536" : " has 16384 + 65536"));
        if (odd != 0) {
          EXPECT_HAS(result, "rank " + std::to_string(odd) + " has");
        }
      }
      EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
      EXPECT_FALSE(name_exists(id));
    }
  }
}

TEST(SegmentProcessTest, RankZeroTwiceIsRefusedAndTheFirstOneGoesOn) {
  const UniqueId id = unique_id_create();
  Rank first([&] { set_up(id, 0, 2); });
  ASSERT_TRUE(eventually([&] { return name_exists(id); }));
  Rank second([&] { set_up(id, 0, 2); });
  const std::string result = second.result();
  EXPECT_HAS(result, "exists and was not removed: its rank 0 is alive (pid " + std::to_string(first.pid()) + ")");
  Rank one([&] { set_up(id, 1, 2); });
  EXPECT_EQ(one.result(), "");
  EXPECT_EQ(first.result(), "");
  EXPECT_FALSE(name_exists(id));
}

TEST(SegmentProcessTest, ALeftoverOfAKilledRankZeroIsReplacedByTheNextStart) {
  const UniqueId id = unique_id_from_key("segment_process_test " + std::to_string(getpid()));
  Rank dead([&] { set_up(id, 0, 2, kGeometry, [](Segment&, Phase) { raise(SIGKILL); }); });
  EXPECT_EQ(dead.result(), "signal 9");
  EXPECT_TRUE(name_exists(id));
  Rank one([&] { set_up(id, 1, 2); });  // comes first: it waits for the new segment
  usleep(50'000);
  Rank zero([&] { set_up(id, 0, 2); });
  EXPECT_EQ(zero.result(), "");
  EXPECT_EQ(one.result(), "");
  EXPECT_FALSE(name_exists(id));
}

TEST(SegmentProcessTest, ANameRemovedBeforeAllHaveComeEndsTheWaitAtOnceAndSaysSo) {
  const UniqueId id = unique_id_create();
  Rank zero([&] { set_up(id, 0, 3); });
  Rank one([&] {
    set_up(id, 1, 3, kGeometry, [&](Segment&, Phase at) {
      if (at == Phase::kWritten) shm_unlink(unique_id_segment_name(id).c_str());
    });
  });
  const auto start = monotonic_ns();
  const std::string text = "somebody removed /dev/shm" + unique_id_segment_name(id) + " before rank 2 had found it";
  EXPECT_HAS(zero.result(), status_is(Status::kSystem) + text);
  EXPECT_HAS(one.result(), status_is(Status::kSystem) + text);
  EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
}

TEST(SegmentProcessTest, AStoppedRankSuspendsTheTimeOut) {
  const UniqueId id = unique_id_create();
  Rank one([&] {
    set_up(id, 1, 2, kGeometry, [](Segment&, Phase at) {
      if (at == Phase::kClaimed) raise(SIGSTOP);
    });
  });
  Rank zero([&] {
    Segment segment = Segment::create_or_open(id, 0, 2, kGeometry, Deadline::after_seconds(kInitSeconds));
    Liveness liveness(segment);
    Fence fence(segment, liveness);
    for (std::byte& byte : segment.window(0)) byte = std::byte{1};
    fence.publish(Phase::kWritten);
    fence.wait_all(Phase::kWritten, Deadline::after_ns(700'000'000));
    fence.publish(Phase::kOpened);
    fence.wait_all(Phase::kOpened, Deadline::after_seconds(kInitSeconds));
  });
  usleep(1'500'000);
  one.signal(SIGCONT);
  EXPECT_EQ(zero.result(), "");
  EXPECT_EQ(one.result(), "");
}

}  // namespace
}  // namespace ringbell::host
