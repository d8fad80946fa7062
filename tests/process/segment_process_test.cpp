// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Set-up with ranks as processes: worlds 2 to 8, death at each phase, doubled ranks, a small /dev/shm, PID namespaces,
// other users. Every case ends with nothing left in /dev/shm. Starts no program: ranks are forks that never exec.
// ringbell-test: timeout=120
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/ringbell_error.hpp"
#include "host/fence.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

constexpr SegmentGeometry kGeometry{2 * kPageBytes, 16 * kPageBytes};
constexpr double kInitSeconds = 30;

/// A forked process that runs `body`; its exit code is the Status of the Error it threw, its text comes by a pipe.
class Rank {
 public:
  explicit Rank(const std::function<void()>& body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      std::string text;
      int code = 0;
      try {
        body();
      } catch (const Error& error) {
        text = error.what();
        code = static_cast<int>(error.status());
      }
      const ssize_t ignored = write(ends[1], text.data(), text.size());
      _exit(ignored < 0 ? 99 : code);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Rank() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    ::close(out_);
  }
  Rank(Rank&& other) noexcept : pid_(other.pid_), out_(other.out_), status_(other.status_) {
    other.pid_ = -1;
    other.out_ = -1;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for the end. @return "" for success, "status 5: text", or "signal 9".
  std::string result() {
    std::string text;
    char buffer[1024];
    for (ssize_t got; (got = read(out_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    wait();
    if (WIFSIGNALED(status_)) return "signal " + std::to_string(WTERMSIG(status_));
    return WEXITSTATUS(status_) == 0 ? "" : "status " + std::to_string(WEXITSTATUS(status_)) + ": " + text;
  }

 private:
  void wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  int status_ = 0;
};

std::string status_is(Status status) { return "status " + std::to_string(static_cast<int>(status)) + ": "; }

/// The whole set-up and teardown of one rank; `at` runs when the phase has been reached.
void set_up(
    const UniqueId& id, int rank, int world, const SegmentGeometry& geometry = kGeometry,
    const std::function<void(Segment&, Phase)>& at = [](Segment&, Phase) {}) {
  const auto deadline = Deadline::after_seconds(kInitSeconds);
  Segment segment = Segment::create_or_open(id, rank, world, geometry, deadline);
  Liveness liveness(segment);
  Fence fence(segment, liveness);
  at(segment, Phase::kClaimed);
  for (std::byte& byte : segment.control(rank)) byte = static_cast<std::byte>(rank + 1);
  for (std::byte& byte : segment.window(rank)) byte = static_cast<std::byte>(rank + 1);
  fence.publish(Phase::kWritten);
  at(segment, Phase::kWritten);
  fence.wait_all(Phase::kWritten, deadline);
  for (int peer = 0; peer < world; ++peer) {
    if (segment.same_process(peer) != (peer == rank)) throw Error(Status::kSystem, "processes mixed up");
    for (const std::byte byte : segment.window(peer)) {
      if (byte != static_cast<std::byte>(peer + 1)) throw Error(Status::kMismatch, "a window holds other bytes");
    }
  }
  fence.publish(Phase::kOpened);
  at(segment, Phase::kOpened);
  fence.wait_all(Phase::kOpened, deadline);
  fence.publish(Phase::kClosed);
  std::string why;
  const Status closed = fence.try_wait_all(Phase::kClosed, deadline, &why);
  if (closed != Status::kOk) throw Error(closed, why);
}

bool name_exists(const UniqueId& id) {
  struct stat info {};
  return lstat(("/dev/shm" + unique_id_segment_name(id)).c_str(), &info) == 0;
}

bool eventually(const std::function<bool()>& true_now) {
  for (int i = 0; i < 3000; ++i) {
    if (true_now()) return true;
    usleep(5000);
  }
  return false;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

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

// ---- a /dev/shm of a given size, in a mount namespace of our own
// -------------------------------------------------------

bool mount_shm(const std::string& size) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

bool may_unshare(int flags) {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(flags) == 0 && ((flags & CLONE_NEWNS) == 0 || mount_shm("64k")) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

constexpr int kShmUnavailable = 90;

/// Runs all ranks in a fresh /dev/shm of `size` and gives their results; "left: NAME" is added for what remains there.
std::vector<std::string> in_small_shm(
    const std::string& size, int world, const SegmentGeometry& geometry,
    const std::function<void(int)>& before = [](int) {},
    const std::function<void(Segment&, Phase)>& at = [](Segment&, Phase) {}) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  const pid_t house = fork();
  if (house == 0) {
    if (!mount_shm(size)) _exit(kShmUnavailable);
    const UniqueId id = unique_id_create();
    std::vector<Rank> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] {
        before(rank);
        set_up(id, rank, world, geometry, at);
      });
    }
    std::string all;
    for (Rank& rank : ranks) all += rank.result() + "\n";
    if (name_exists(id)) all += "left: " + unique_id_segment_name(id) + "\n";
    _exit(write(ends[1], all.data(), all.size()) == static_cast<ssize_t>(all.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string all;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    all.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  waitpid(house, &status, 0);
  EXPECT_EQ(status, 0);
  std::vector<std::string> results;
  for (std::size_t begin = 0, end; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1) {
    results.push_back(all.substr(begin, end - begin));
  }
  return results;
}

class SmallShmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_unshare(CLONE_NEWNS)) GTEST_SKIP() << "needs a mount namespace (root)";
  }
};

TEST_F(SmallShmTest, AFullShmIsAnErrorWithNumbersOnEveryRankAndNoBusError) {
  // Room for header and cards, or for some of the windows: whoever is short says so, and the others repeat it.
  for (const char* size : {"64k", "1m"}) {
    SCOPED_TRACE(size);
    const SegmentGeometry geometry{16 * kPageBytes, 256 * kPageBytes};
    const auto results = in_small_shm(size, 8, geometry);
    ASSERT_EQ(results.size(), 8u) << "something was left in /dev/shm";
    int own = 0;
    for (const std::string& result : results) {
      EXPECT_HAS(result, "/dev/shm is too small: this rank needs ");
      EXPECT_HAS(result, "the whole session " + std::to_string(segment_bytes(8, geometry)) + " bytes");
      EXPECT_HAS(result, "free are ");
      EXPECT_HAS(result, "remount,size=");
      EXPECT_HAS(result, "--shm-size=");
      EXPECT_HAS(result, "RINGBELL_SLOT_BYTES, ringbell perf --chunk");
      if (result.starts_with(status_is(Status::kSystem))) ++own;
    }
    EXPECT_GE(own, 1);
  }
}

TEST_F(SmallShmTest, AReadOnlyOneIsToldWithTheRemountThatHelps) {
  const auto read_only = [](int) {
    if (mount("tmpfs", "/dev/shm", nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      throw Error(Status::kSystem, "no remount");
  };
  const auto results = in_small_shm("1m", 1, kGeometry, read_only);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_HAS(results[0], "mount -o remount,rw /dev/shm");
}

TEST_F(SmallShmTest, NotEvenRoomForTheHeaderIsTheSameError) {
  const auto results = in_small_shm("4k", 1, kGeometry);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_HAS(results[0], "/dev/shm is too small: this rank needs 8192 bytes");
}

TEST_F(SmallShmTest, SizeZeroMeansNoLimitAndWorks) {
  for (const std::string& result : in_small_shm("0", 8, kGeometry)) EXPECT_EQ(result, "");
}

TEST_F(SmallShmTest, JustEnoughIsEnough) {
  for (const std::string& result : in_small_shm(std::to_string(segment_bytes(4, kGeometry)), 4, kGeometry))
    EXPECT_EQ(result, "");
}

TEST_F(SmallShmTest, FilledUpBetweenTwoRanks) {
  const auto exists = [](const char* path) { return access(path, F_OK) == 0; };
  const auto results = in_small_shm(
      "1m", 2, kGeometry,
      [&](int rank) {
        if (rank == 1) eventually([&] { return exists("/dev/shm/full"); });
      },
      [&](Segment& segment, Phase at) {
        if (segment.rank() != 0 || at != Phase::kClaimed) return;
        const int fd = ::open("/dev/shm/filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        const std::vector<char> page(kPageBytes, 'x');
        while (write(fd, page.data(), page.size()) == static_cast<ssize_t>(page.size())) {
        }
        ::close(fd);
        ::close(::open("/dev/shm/full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      });
  ASSERT_EQ(results.size(), 2u) << "something was left in /dev/shm";
  EXPECT_HAS(results[0], status_is(Status::kAborted) + "rank 1 failed to start: /dev/shm is too small");
  EXPECT_HAS(results[1],
             status_is(Status::kSystem) + "/dev/shm is too small: this rank needs 8192 bytes (8.0 KiB) now");
  EXPECT_HAS(results[1], "free are 0 bytes");
}

TEST(SegmentNamespaceTest, RanksInDifferentPidNamespacesFindAndLoseEachOther) {
  if (!may_unshare(CLONE_NEWPID)) GTEST_SKIP() << "needs a PID namespace (root)";
  for (const bool dies : {false, true}) {
    const UniqueId id = unique_id_create();
    Rank zero([&] { set_up(id, 0, 2); });
    Rank outer([&] {
      if (unshare(CLONE_NEWPID) != 0) _exit(90);
      Rank one([&] {
        set_up(id, 1, 2, kGeometry, [&](Segment&, Phase at) {
          if (dies && at == Phase::kClaimed) kill(getpid(), SIGKILL), _exit(91);
        });
      });
      const std::string result = one.result();
      if (!result.empty()) throw Error(Status::kSystem, result);
    });
    if (dies) {
      EXPECT_HAS(zero.result(), "rank 1 (pid 1) died during set-up");
      EXPECT_NE(outer.result(), "");
    } else {
      EXPECT_EQ(zero.result(), "");
      EXPECT_EQ(outer.result(), "");
    }
    EXPECT_FALSE(name_exists(id));
  }
}

TEST(SegmentUserTest, TwoUsersWithOneSessionKeyNeitherJoinNorBlockEachOther) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be another user";
  const std::string key = "segment_process_test users " + std::to_string(getpid());
  const auto as_user = [&](uid_t uid, int rank) {
    return [&key, uid, rank] {
      if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(90);
      set_up(unique_id_from_key(key), rank, 2);
    };
  };
  std::vector<Rank> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back(as_user(65534, rank));
    ranks.emplace_back(as_user(0, rank));
  }
  for (Rank& rank : ranks) EXPECT_EQ(rank.result(), "");
}

TEST(SegmentUserTest, AnotherUsersFileUnderOurNameIsRefusedAndKept) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be another user";
  const UniqueId id = unique_id_create();
  const std::string path = "/dev/shm" + unique_id_segment_name(id);
  Rank planter([&] {
    if (setresuid(65534, 65534, 65534) != 0) _exit(90);
    ::close(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  });
  ASSERT_EQ(planter.result(), "");
  for (const int rank : {0, 1}) {
    Rank refused([&] { set_up(id, rank, 2); });
    EXPECT_HAS(refused.result(), "belongs to uid 65534, this process runs as uid 0");
  }
  EXPECT_TRUE(name_exists(id));
  unlink(path.c_str());
}

}  // namespace
}  // namespace ringbell::host
