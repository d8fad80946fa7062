// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Set-up where the system is narrow: a /dev/shm that is small, full or read-only, PID namespaces, other users. Every
// case ends with nothing left in /dev/shm. Starts no program.
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

#include "tests/support/set_up_process.hpp"

namespace ringbell::host {
namespace {

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
