// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One segment, ranks as threads of this process: names, modes, what is found under a name, claims, sharing. Ranks as
// processes are tests/process/segment_process_test.cpp.
#include "host/segment.hpp"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/ringbell_error.hpp"
#include "host/liveness.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

constexpr SegmentGeometry kGeometry{2 * kPageBytes, 16 * kPageBytes};

Deadline soon() { return Deadline::after_ns(200'000'000); }

bool name_exists(const std::string& name) {
  struct stat info {};
  return lstat(("/dev/shm" + name).c_str(), &info) == 0;
}

template <class Call>
std::pair<Status, std::string> refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {Status::kOk, "(accepted)"};
}

#define EXPECT_REFUSED(expected_status, call, ...)                                    \
  do {                                                                                \
    const auto [status, text] = refusal([&] { call; });                               \
    EXPECT_EQ(static_cast<int>(status), static_cast<int>(expected_status)) << text;   \
    for (const std::string& part : std::initializer_list<std::string>{__VA_ARGS__}) { \
      EXPECT_NE(text.find(part), std::string::npos) << text;                          \
    }                                                                                 \
  } while (false)

/// A file under a fresh id's name, removed at the end whatever happens to it.
class Planted {
 public:
  explicit Planted(std::string_view content = {}, mode_t mode = 0600) : name_(unique_id_segment_name(id_)) {
    const int fd = ::open(path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    EXPECT_EQ(fchmod(fd, mode), 0);
    ::close(fd);
  }
  ~Planted() { unlink(path().c_str()); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
  void make_old() const {
    const timespec old[2] = {{1000, 0}, {1000, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path().c_str(), old, AT_SYMLINK_NOFOLLOW), 0);
  }
  [[nodiscard]] const UniqueId& id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string path() const { return "/dev/shm" + name_; }

 private:
  UniqueId id_ = unique_id_create();
  std::string name_;
};

std::string header_bytes(std::uint32_t layout_version, int world) {
  SegmentHeader header{};
  header.magic = kSegmentMagic;
  header.layout_version = layout_version;
  header.header_bytes = sizeof header;
  header.world = static_cast<std::uint32_t>(world);
  header.total_bytes = segment_bytes(world, kGeometry);
  header.creator_pid = 4711;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

TEST(SegmentTest, TheFileIsPrivateUnderAnyUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{077}, mode_t{0777}}) {
    const UniqueId id = unique_id_create();
    const mode_t before = umask(mask);
    const Segment segment = Segment::create_or_open(id, 0, 1, kGeometry, soon());
    umask(before);
    struct stat info {};
    ASSERT_EQ(lstat(("/dev/shm" + segment.name()).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u) << "umask " << mask;
    EXPECT_EQ(info.st_uid, geteuid());
    EXPECT_EQ(static_cast<std::size_t>(info.st_size), segment_bytes(1, kGeometry));
    EXPECT_NE(segment.name().find("/ringbell-" + std::to_string(geteuid()) + "-"), std::string::npos);
    EXPECT_EQ(fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(SegmentTest, EveryPageOfARankIsReservedBeforeItIsTouched) {
  const Segment segment = Segment::create_or_open(unique_id_create(), 0, 1, kGeometry, soon());
  struct stat info {};
  ASSERT_EQ(fstat(segment.fd(), &info), 0);
  EXPECT_EQ(static_cast<std::size_t>(info.st_blocks) * 512, segment_bytes(1, kGeometry));
}

class SegmentWorldTest : public ::testing::TestWithParam<int> {};

TEST_P(SegmentWorldTest, RanksOfAProcessShareOneMappingAndOwnDisjointBytes) {
  const int world = GetParam();
  const UniqueId id = unique_id_create();
  std::vector<std::unique_ptr<Segment>> segments(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = world - 1; rank >= 0; --rank) {  // rank 0 last: the others wait for it
    threads.emplace_back([&, rank] {
      segments[static_cast<std::size_t>(rank)] =
          std::make_unique<Segment>(Segment::create_or_open(id, rank, world, kGeometry, Deadline::after_seconds(20)));
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<std::byte*> starts;
  for (int rank = 0; rank < world; ++rank) {
    Segment& mine = *segments[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mine.fd(), segments[0]->fd());
    EXPECT_EQ(mine.base(), segments[0]->base());
    EXPECT_EQ(mine.phase(rank), Phase::kClaimed);
    EXPECT_EQ(mine.card(rank).rank, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(mine.card(rank).pid, static_cast<std::uint32_t>(getpid()));
    EXPECT_EQ(mine.card(rank).nonce, mine.header().nonce);
    EXPECT_TRUE(mine.same_process((rank + 1) % world));
    std::memset(mine.control(rank).data(), rank + 1, mine.control(rank).size());
    std::memset(mine.window(rank).data(), rank + 1, mine.window(rank).size());
    starts.insert(mine.control(rank).data());
    starts.insert(mine.window(rank).data());
  }
  EXPECT_EQ(starts.size(), 2 * static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    for (const std::byte b : segments[0]->control(rank)) ASSERT_EQ(b, static_cast<std::byte>(rank + 1));
    for (const std::byte b : segments[0]->window(rank)) ASSERT_EQ(b, static_cast<std::byte>(rank + 1));
  }
  const std::string name = segments[0]->name();
  EXPECT_TRUE(name_exists(name));
  segments.clear();
  EXPECT_FALSE(name_exists(name));
}
INSTANTIATE_TEST_SUITE_P(Worlds, SegmentWorldTest, ::testing::Range(1, kMaxRanks + 1));

TEST(SegmentTest, OneRankThatLeavesTakesNoOtherRanksLock) {
  const UniqueId id = unique_id_create();
  Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  auto one = std::make_unique<Segment>(Segment::create_or_open(id, 1, 2, kGeometry, soon()));
  const auto free_bytes = [&] {  // own locks are invisible: ask from another process
    const pid_t child = fork();
    if (child == 0) _exit((rank_byte_is_free(zero.fd(), 0) ? 1 : 0) | (rank_byte_is_free(zero.fd(), 1) ? 2 : 0));
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(free_bytes(), 0);
  one.reset();
  EXPECT_EQ(free_bytes(), 2);
}

TEST(SegmentTest, ArgumentsAreChecked) {
  const UniqueId id = unique_id_create();
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 2, 2, kGeometry, soon()), "rank=2 with world=2");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, -1, 2, kGeometry, soon()), "rank=-1");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 0, 0, kGeometry, soon()), "world=0");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 0, 9, kGeometry, soon()), "world=9", "1 to 8");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 0, 2, (SegmentGeometry{100, 0}), soon()),
                 "100 bytes");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(UniqueId{}, 0, 2, kGeometry, soon()), "unique id");
}

TEST(SegmentTest, WaitingForRankZeroEndsAtTheDeadline) {
  const auto start = monotonic_ns();
  EXPECT_REFUSED(Status::kTimeout, Segment::create_or_open(unique_id_create(), 1, 2, kGeometry, soon()),
                 "rank 1 waited ", " s for rank 0", "nothing has that name", "RINGBELL_INIT_TIMEOUT_S");
  EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
}

TEST(SegmentTest, DisagreementNamesBothValues) {
  const UniqueId id = unique_id_create();
  const Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 1, 3, kGeometry, soon()),
                 "with world 2, rank 1 has 3");
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 1, 2, (SegmentGeometry{kPageBytes, 0}), soon()),
                 "with control + window bytes per rank 8192 + 65536, rank 1 has 4096 + 0");
}

TEST(SegmentTest, DisagreementOnASourceOfTheSizesNamesItInsteadOfBytesAndIsLeftForTheOthers) {
  const UniqueId id = unique_id_create();
  const auto sources = [](const char* slots, const char* depth) {
    return std::vector<SizeSource>{{"slot bytes", slots, "equal slots, please"},
                                   {"queue depth", depth, "equal queues"}};
  };
  const Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, soon(), sources("1920", "64"));
  EXPECT_EQ(zero.refusal(), "");
  EXPECT_REFUSED(Status::kInvalidArgument,
                 Segment::create_or_open(id, 1, 2, (SegmentGeometry{kPageBytes, 0}), soon(), sources("1920", "128")),
                 "with queue depth 64, rank 1 has 128; equal queues");
  EXPECT_NE(zero.refusal().find("with queue depth 64, rank 1 has 128; equal queues"), std::string::npos);
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 1, 2, kGeometry, soon(), sources("3840", "64")),
                 "with slot bytes 1920, rank 1 has 3840; equal slots");
  EXPECT_NE(zero.refusal().find("queue depth"), std::string::npos) << "the first note stays";
  EXPECT_NO_THROW(Segment::create_or_open(id, 1, 2, kGeometry, soon(), sources("1920", "64")));
  EXPECT_REFUSED(Status::kInvalidArgument,
                 Segment::create_or_open(id, 0, 2, kGeometry, soon(), std::vector<SizeSource>(kSizeSources + 1)),
                 "5 size sources");
}

TEST(SegmentTest, ARankTakenTwiceIsRefusedByName) {
  const UniqueId id = unique_id_create();
  const Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  const Segment one = Segment::create_or_open(id, 1, 2, kGeometry, soon());
  EXPECT_EQ(zero.doubly_claimed_rank(), -1);
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 1, 2, kGeometry, soon()),
                 "rank 1 is claimed twice", "by the same process");
  EXPECT_EQ(zero.doubly_claimed_rank(), 1);
  EXPECT_EQ(one.phase(1), Phase::kClaimed) << "the first owner is untouched";
  const auto start = monotonic_ns();
  EXPECT_REFUSED(Status::kInvalidArgument, Segment::create_or_open(id, 0, 2, kGeometry, Deadline::after_seconds(20)),
                 "rank 0 is claimed twice", "by the same process");
  EXPECT_LT(monotonic_ns() - start, kNanosPerSecond);
  EXPECT_EQ(zero.doubly_claimed_rank(), 0);
  EXPECT_TRUE(name_exists(zero.name()));
}

TEST(SegmentTest, ARankTakenTwiceWithoutASegmentIsRefusedOnBothSides) {
  const UniqueId id = unique_id_create();
  const auto start = monotonic_ns();
  std::vector<std::pair<Status, std::string>> refusals(2);
  std::vector<std::thread> threads;
  for (auto& seen : refusals) {
    threads.emplace_back(
        [&] { seen = refusal([&] { Segment::create_or_open(id, 1, 2, kGeometry, Deadline::after_seconds(20)); }); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LT(monotonic_ns() - start, 5 * kNanosPerSecond);
  for (const auto& [status, text] : refusals) {
    EXPECT_EQ(status, Status::kInvalidArgument) << text;
    EXPECT_NE(text.find("rank 1 is claimed twice"), std::string::npos) << text;
  }
}

TEST(SegmentTest, ALeftoverOfThisProcessesOwnSessionIsStillWaitedForAndNotTakenForADouble) {
  const UniqueId id = unique_id_create();
  Segment old_zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  old_zero.publish_phase(Phase::kOpened);  // its set-up is over, though its name is still there
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(id, 0, 2, kGeometry, soon()), "exists and was not removed",
                 "a rank of this very process uses it");
}

TEST(SegmentTest, ANewSessionMayTakeTheNameWhileTheOldOneLives) {
  const UniqueId id = unique_id_create();
  Segment old_zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  Segment old_one = Segment::create_or_open(id, 1, 2, kGeometry, soon());
  EXPECT_TRUE(old_zero.unlink_name());
  old_zero.publish_phase(Phase::kOpened);
  old_one.publish_phase(Phase::kOpened);
  const Segment new_zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
  const Segment new_one = Segment::create_or_open(id, 1, 2, kGeometry, soon());
  EXPECT_NE(new_one.base(), old_one.base());
  EXPECT_NE(new_one.header().nonce, old_one.header().nonce);
  EXPECT_FALSE(old_zero.unlink_name()) << "the name is another segment's now";
  EXPECT_TRUE(name_exists(new_zero.name()));
}

TEST(SegmentTest, AnEmptyLeftoverIsReplacedOnceItIsOldEnoughToBeDead) {
  const Planted young;
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(young.id(), 0, 1, kGeometry, soon()), "it was made just now",
                 "rm ");
  young.make_old();
  EXPECT_EQ(Segment::create_or_open(young.id(), 0, 1, kGeometry, soon()).world(), 1);
}

TEST(SegmentTest, ADeadLeftoverOfAnyLayoutVersionIsReplaced) {
  for (const std::uint32_t version : {0u, kSegmentLayoutVersion, kSegmentLayoutVersion + 1}) {
    const Planted leftover(header_bytes(version, 1));
    EXPECT_NO_THROW(Segment::create_or_open(leftover.id(), 0, 1, kGeometry, soon())) << version;
  }
}

TEST(SegmentTest, ALeftoverThatSomebodyHasOpenIsKept) {
  const Planted leftover(header_bytes(kSegmentLayoutVersion, 1));
  const pid_t child = fork();
  if (child == 0) {
    if (::open(leftover.path().c_str(), O_RDONLY) < 0) _exit(1);
    pause();
    _exit(0);
  }
  usleep(100'000);
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(leftover.id(), 0, 1, kGeometry, soon()),
                 leftover.name().c_str(), ("process " + std::to_string(child) + " has it open").c_str());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(Segment::create_or_open(leftover.id(), 0, 1, kGeometry, soon()));
}

TEST(SegmentTest, OpenersWaitBesideADeadOrHalfMadeLeftoverAndSayWhatTheySaw) {
  const Planted empty;
  EXPECT_REFUSED(Status::kTimeout, Segment::create_or_open(empty.id(), 1, 2, kGeometry, soon()), "a half-made segment");
  const Planted sized(std::string(2 * kPageBytes, 0));
  EXPECT_REFUSED(Status::kTimeout, Segment::create_or_open(sized.id(), 1, 2, kGeometry, soon()), "a half-made segment");
  const Planted dead(header_bytes(kSegmentLayoutVersion, 2));
  EXPECT_REFUSED(Status::kTimeout, Segment::create_or_open(dead.id(), 1, 2, kGeometry, soon()),
                 "a leftover of a dead rank 0 (pid 4711)");
}

TEST(SegmentTest, AnOpenerFindsTheSegmentThatReplacesALeftover) {
  const Planted dead(header_bytes(kSegmentLayoutVersion, 2));
  std::thread late([&] {
    usleep(100'000);
    const Segment zero = Segment::create_or_open(dead.id(), 0, 2, kGeometry, Deadline::after_seconds(20));
    while (!zero.is_claimed(1)) usleep(1000);
  });
  EXPECT_NO_THROW(Segment::create_or_open(dead.id(), 1, 2, kGeometry, Deadline::after_seconds(20)));
  late.join();
}

TEST(SegmentTest, GarbageIsRefusedAndNeverRemoved) {
  const Planted garbage("this is not a segment at all");
  garbage.make_old();
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(garbage.id(), 0, 2, kGeometry, soon()),
                 "not a ringbell segment", garbage.path().c_str());
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(garbage.id(), 1, 2, kGeometry, soon()),
                 "not a ringbell segment", "rm /dev/shm/ringbell-");
  EXPECT_TRUE(name_exists(garbage.name()));
}

// Everything in the header fits, and still it ends before the pages that this rank would touch.
TEST(SegmentTest, ALiveSegmentOfAnotherSizeIsAnErrorWithBothSizesAndNoBusError) {
  for (const bool header_too : {false, true}) {
    const UniqueId id = unique_id_create();
    const pid_t child = fork();
    if (child == 0) {
      const Segment zero = Segment::create_or_open(id, 0, 2, kGeometry, soon());
      const std::size_t small = 2 * kPageBytes;
      if (header_too) zero.header().total_bytes = small;
      if (ftruncate(zero.fd(), small) != 0) _exit(1);
      pause();
      _exit(0);
    }
    usleep(100'000);
    EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(id, 1, 2, kGeometry, soon()), "is 8192 bytes long",
                   std::to_string(segment_bytes(2, kGeometry)), "start all ranks again");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    shm_unlink(unique_id_segment_name(id).c_str());
  }
}

TEST(SegmentTest, AFileThatOthersMayTouchIsRefused) {
  for (const mode_t mode : {mode_t{0644}, mode_t{0666}, mode_t{0610}}) {
    const Planted open_file(header_bytes(kSegmentLayoutVersion, 2), mode);
    EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(open_file.id(), 1, 2, kGeometry, soon()), "has mode 06",
                   "0600");
    EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(open_file.id(), 0, 2, kGeometry, soon()), "has mode 06");
    EXPECT_TRUE(name_exists(open_file.name()));
  }
}

TEST(SegmentTest, ASymbolicLinkIsRefusedAndItsTargetUntouched) {
  const Planted target("precious");
  const Planted link;
  ASSERT_EQ(unlink(link.path().c_str()), 0);
  ASSERT_EQ(symlink(target.path().c_str(), link.path().c_str()), 0);
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(link.id(), 0, 2, kGeometry, soon()), "symbolic link");
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(link.id(), 1, 2, kGeometry, soon()), "symbolic link");
  EXPECT_TRUE(name_exists(link.name()));
  struct stat info {};
  ASSERT_EQ(stat(target.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 8);
}

TEST(SegmentTest, AForeignFileIsRefusedAndNeverRemoved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make another user's file";
  const Planted foreign(header_bytes(kSegmentLayoutVersion, 2));
  ASSERT_EQ(chown(foreign.path().c_str(), 65534, 65534), 0);
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(foreign.id(), 0, 2, kGeometry, soon()),
                 "belongs to uid 65534", "runs as uid 0");
  EXPECT_REFUSED(Status::kSystem, Segment::create_or_open(foreign.id(), 1, 2, kGeometry, soon()),
                 "belongs to uid 65534");
  EXPECT_TRUE(name_exists(foreign.name()));
}

TEST(SegmentTest, AChildOfForkRemovesNothing) {
  Segment segment = Segment::create_or_open(unique_id_create(), 0, 1, kGeometry, soon());
  const pid_t child = fork();
  if (child == 0) {
    const bool quiet = !segment.in_owner_process() && !segment.unlink_name();
    { const Segment moved = std::move(segment); }
    _exit(quiet ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(name_exists(segment.name()));
  EXPECT_EQ(segment.phase(0), Phase::kClaimed);
}

TEST(UniqueIdTest, EveryKindOfDamageIsTold) {
  const UniqueId good = unique_id_create();
  EXPECT_NO_THROW(unique_id_validate(good));
  UniqueId bad = good;
  bad.bytes[0] ^= 1;
  EXPECT_REFUSED(Status::kInvalidArgument, unique_id_validate(bad), "does not come from unique_id_create");
  bad = good;
  bad.bytes[8] ^= 2;
  EXPECT_REFUSED(Status::kInvalidArgument, unique_id_validate(bad), "version 3");
  for (const int i : {12, 16, 31, 32, 119, 120, 127}) {
    bad = good;
    bad.bytes[i] ^= 1;
    EXPECT_REFUSED(Status::kInvalidArgument, unique_id_validate(bad), "checksum is wrong");
  }
  if (geteuid() == 0) {
    ASSERT_EQ(seteuid(65534), 0);
    const UniqueId foreign = unique_id_create();
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_REFUSED(Status::kInvalidArgument, unique_id_validate(foreign), "made by uid 65534", "runs as uid 0");
  }
}

TEST(UniqueIdTest, IdsDifferAndKeysRepeat) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(unique_id_segment_name(unique_id_create()));
  EXPECT_EQ(names.size(), 1000u);
  EXPECT_EQ(unique_id_token(unique_id_from_key("job 1")), unique_id_token(unique_id_from_key("job 1")));
  EXPECT_NE(unique_id_segment_name(unique_id_from_key("job 1")), unique_id_segment_name(unique_id_from_key("job 2")));
  EXPECT_NO_THROW(unique_id_validate(unique_id_from_key("")));
}

}  // namespace
}  // namespace ringbell::host
