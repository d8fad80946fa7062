// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Groups take turns: results arrive, waiting costs nothing, and whatever dies or stands still, nobody waits for ever.
// Threads stand for processes: each has its own view of the page.
#include "tools/turns.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

namespace ringbell::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLongS = 30;  // never reached
const TurnsShape kShape{3, 2, 4};
const RowPlan kPlan{DType::kFloat32, ReduceOp::kSum, 10};

class TurnsTest : public testing::Test {
 protected:
  ~TurnsTest() override { close(fd_); }
  const int fd_ = Turns::create_place(kShape);
  Turns conductor_{fd_, kShape};
};

Row measured_row(double first) {
  Row row = row_of(kPlan);
  Measured measured;
  measured.samples_us = {first, first + 1, first + 2};
  measured.path = {"ring", "LL", 2, 1920};
  measured.wrong = 7;
  measured.sent_as_expected = false;
  row.out_of_place = measured;
  return row;
}

double seconds_of(const std::function<void()>& body) {
  const Clock::time_point begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Ends groups that failed, as the launcher does.
class Launcher {
 public:
  explicit Launcher(int fd)
      : turns_(fd, kShape), thread_([this] {
          while (!stop_) {
            for (int group = 1; group < kShape.groups; ++group) {
              if (turns_.failed(group)) turns_.gone(group, "");
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Launcher() {
    stop_ = true;
    thread_.join();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

 private:
  Turns turns_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(TurnsTest, GroupsOfSeveralRanksMeasureWhatTheyAreToldAndTheRestIsLeftAlone) {
  std::atomic<int> measuring{0};
  std::atomic<int> together{0};
  const auto rank = [&](int group, bool first) {
    Turns turns(fd_, kShape);
    if (first) turns.say_ready(group, "version 1");
    while (const auto row = turns.await(group)) {
      if (first && ++measuring > 1) ++together;
      turns.beat(group);
      if (first) turns.put(measured_row(100.0 * group + *row));
      if (first) --measuring;
      turns.finish(group, 2);
    }
  };
  std::vector<std::thread> ranks;
  for (const int group : {1, 2}) {
    for (const bool first : {true, false}) ranks.emplace_back(rank, group, first);
  }
  for (const int group : {1, 2}) {
    ASSERT_TRUE(conductor_.wait_ready(group, kLongS));
    EXPECT_EQ(conductor_.about(group), "version 1");
  }
  for (int turn = 0; turn < 200; ++turn) {
    const int group = turn % 2 + 1;
    const auto row = static_cast<std::uint32_t>(turn / 2 % 2);
    conductor_.give(group, row);
    ASSERT_TRUE(conductor_.wait_finished(group, kLongS));
    const Row taken = conductor_.take(kPlan);
    ASSERT_TRUE(taken.out_of_place);
    EXPECT_FALSE(taken.in_place);
    EXPECT_EQ(taken.out_of_place->samples_us.size(), 3U);
    EXPECT_EQ(taken.out_of_place->us.max, 100.0 * group + row + 2);
    EXPECT_EQ(taken.out_of_place->wrong, 7U);
    EXPECT_EQ(taken.out_of_place->path.protocol, "LL");
    EXPECT_FALSE(taken.out_of_place->sent_as_expected);
  }
  conductor_.close();
  for (std::thread& one : ranks) one.join();
  EXPECT_EQ(together, 0);
}

TEST_F(TurnsTest, MoreSamplesThanThePageHoldsAndLongTextsAreCut) {
  Row row = measured_row(1);
  row.out_of_place->samples_us.assign(100, 5);
  row.refusal = std::string(5000, 'x');
  conductor_.put(row);
  const Row taken = conductor_.take(kPlan);
  EXPECT_EQ(taken.out_of_place->samples_us.size(), kShape.samples);
  EXPECT_LT(taken.refusal.size(), 1000U);
}

TEST_F(TurnsTest, WaitingCostsNoProcessorTime) {
  double used_s = -1;
  std::thread rank([&] {
    Turns turns(fd_, kShape);
    static_cast<void>(turns.await(1));
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    used_s = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  conductor_.close();
  rank.join();
  EXPECT_LT(used_s, 0.03);
}

TEST_F(TurnsTest, AGroupThatDiesWhileItMeasuresEndsTheWait) {
  Launcher launcher(fd_);
  std::thread dies([&] {
    Turns turns(fd_, kShape);
    static_cast<void>(turns.await(1));
    turns.gone(1, "rank 1 was ended by signal 9");
  });
  conductor_.give(1, 0);
  EXPECT_LT(seconds_of([&] { EXPECT_FALSE(conductor_.wait_finished(1, kLongS)); }), 5);
  EXPECT_EQ(conductor_.why(1), "rank 1 was ended by signal 9");
  dies.join();
}

TEST_F(TurnsTest, AGroupThatDiedWhileItWaitedIsKnownAtItsNextTurn) {
  conductor_.gone(2, "rank 0 exited with code 3");
  conductor_.give(2, 1);
  EXPECT_LT(seconds_of([&] { EXPECT_FALSE(conductor_.wait_finished(2, kLongS)); }), 5);
  EXPECT_FALSE(conductor_.wait_ready(2, kLongS));
  EXPECT_TRUE(conductor_.failed(2));
  EXPECT_FALSE(conductor_.failed(1));
}

TEST_F(TurnsTest, AGroupThatStandsStillIsGivenUpAndOneThatBeatsIsNot) {
  Launcher launcher(fd_);
  std::thread slow([&] {
    Turns turns(fd_, kShape);
    static_cast<void>(turns.await(1));
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      turns.beat(1);
    }
    turns.finish(1, 1);
  });
  conductor_.give(1, 0);
  EXPECT_TRUE(conductor_.wait_finished(1, 2));
  slow.join();
  conductor_.give(2, 0);
  EXPECT_FALSE(conductor_.wait_finished(2, 1));
  EXPECT_EQ(conductor_.why(2), "did not go on for 1 s");
}

TEST_F(TurnsTest, AGroupThatIsNeverSetUpIsGivenUp) {
  Launcher launcher(fd_);
  EXPECT_FALSE(conductor_.wait_ready(1, 1));
  EXPECT_EQ(conductor_.why(1), "not set up after 1 s");
}

TEST_F(TurnsTest, AProbesNotesAreThereAfterwardsAndAStuckOneIsNotWaitedForForEver) {
  conductor_.wait_probe(1, kLongS);  // it has none
  conductor_.probe_begins(1);
  std::thread probe([&] {
    Turns turns(fd_, kShape);
    turns.note_path(1, 1, {"tree", "LL128", 0, 0});
    turns.note_nvls(1, false);
    turns.probe_ended(1);
  });
  conductor_.wait_probe(1, kLongS);
  probe.join();
  EXPECT_EQ(conductor_.path_noted(1, 1)->protocol, "LL128");
  EXPECT_FALSE(conductor_.path_noted(1, 0));
  EXPECT_FALSE(conductor_.path_noted(2, 1));
  EXPECT_EQ(conductor_.nvls_noted(1), false);
  EXPECT_FALSE(conductor_.nvls_noted(2));

  conductor_.probe_begins(2);
  std::thread launcher([&] {
    Turns turns(fd_, kShape);
    while (!turns.probe_unwanted(2)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    turns.probe_ended(2);
  });
  EXPECT_LT(seconds_of([&] { conductor_.wait_probe(2, 0.5); }), 5);
  launcher.join();
}

TEST_F(TurnsTest, NotesOfTheLastRowAndGroupLieInThePage) {
  conductor_.note_path(kShape.groups - 1, kShape.rows - 1, {std::string(100, 'a'), "LL", 0, 0});
  conductor_.put(measured_row(5));
  EXPECT_EQ(conductor_.path_noted(kShape.groups - 1, kShape.rows - 1)->algorithm, std::string(23, 'a'));
}

TEST_F(TurnsTest, TheFirstTextStaysAndEndingWithoutOneIsSaid) {
  conductor_.fail(1, "no such library");
  conductor_.fail(1, "second");
  conductor_.gone(1, "rank 0 exited with code 3");
  EXPECT_EQ(conductor_.why(1), "no such library");
  conductor_.gone(2, "");
  EXPECT_EQ(conductor_.why(2), "it ended before its time");
}

TEST_F(TurnsTest, AnotherShapeIsRefused) { EXPECT_THROW(Turns(fd_, TurnsShape{3, 2, 5}), ExitError); }

}  // namespace
}  // namespace ringbell::tools
