// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The logger: levels, handler, once, ranks of threads, file names.
#include "host/log.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ringbell::host {
namespace {

struct Line {
  LogLevel level;
  int rank;
  std::string text;
};

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarn);
    set_log_handler([this](LogLevel level, int rank, std::string_view text) {
      lines_.push_back({level, rank, std::string(text)});
    });
  }
  void TearDown() override { set_log_handler(nullptr); }
  std::vector<Line> lines_;
};

TEST_F(LogTest, OnlyLevelsUpToTheSetOneAreHeard) {
  log_message(LogLevel::kError, "e");
  log_message(LogLevel::kWarn, "w");
  log_message(LogLevel::kInfo, "i");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].text, "e");
  EXPECT_EQ(lines_[1].level, LogLevel::kWarn);
  set_log_level(LogLevel::kDebug);
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
  log_message(LogLevel::kDebug, "d");
  EXPECT_EQ(lines_.size(), 3u);
  set_log_level(LogLevel::kError);
  EXPECT_FALSE(log_enabled(LogLevel::kWarn));
}

TEST_F(LogTest, OnceIsOncePerKey) {
  EXPECT_TRUE(log_once("log_test a", LogLevel::kWarn, "first"));
  EXPECT_FALSE(log_once("log_test a", LogLevel::kWarn, "second"));
  EXPECT_TRUE(log_once("log_test b", LogLevel::kWarn, "third"));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[1].text, "third");
}

TEST_F(LogTest, MessagesCarryTheRankOfTheirThread) {
  log_message(LogLevel::kWarn, "none");
  {
    const LogRankScope outer(2);
    {
      const LogRankScope inner(3);
      log_message(LogLevel::kWarn, "three");
    }
    log_message(LogLevel::kWarn, "two");
    std::thread([] { log_message(LogLevel::kWarn, "other thread"); }).join();
  }
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_EQ(lines_[0].rank, -1);
  EXPECT_EQ(lines_[1].rank, 3);
  EXPECT_EQ(lines_[2].rank, 2);
  EXPECT_EQ(lines_[3].rank, -1);
}

TEST_F(LogTest, AThrowingHandlerIsSwallowed) {
  set_log_handler([](LogLevel, int, std::string_view) { throw std::runtime_error("no"); });
  log_message(LogLevel::kError, "x");
  set_log_handler(nullptr);
}

TEST_F(LogTest, ManyThreadsLogWhileTheHandlerChanges) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log_message(LogLevel::kWarn, "x");
    });
  }
  for (int i = 0; i < 50; ++i) set_log_handler([](LogLevel, int, std::string_view) {});
  for (auto& thread : threads) thread.join();
}

TEST_F(LogTest, ALineOnStderrHasPrefixLevelAndRank) {
  set_log_handler(nullptr);
  testing::internal::CaptureStderr();
  {
    const LogRankScope rank(5);
    log_message(LogLevel::kError, "per cent %s {} stays");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ringbell: error: rank 5: per cent %s {} stays\n");
}

TEST(LogPathTest, PlaceholdersAreExpanded) {
  EXPECT_EQ(expand_log_path("/tmp/r%r.%p.%h%%", 3, 42, "box"), "/tmp/r3.42.box%");
  EXPECT_EQ(expand_log_path("%r", -1, 1, "h"), "none");
  EXPECT_EQ(expand_log_path("a%xb%", 0, 1, "h"), "a%xb%");
}

// The file and the level are read once per process, so each case is a process of its own.
std::string run_child(const std::string& file, const char* level, const std::string& read_back) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("RINGBELL_LOG_FILE", file.c_str(), 1);
    setenv("RINGBELL_LOG", level, 1);
    execl("/proc/self/exe", "log_test", "--gtest_also_run_disabled_tests", "--gtest_filter=LogChild.DISABLED_Logs",
          nullptr);
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::ifstream in(read_back);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(LogChild, DISABLED_Logs) {
  const LogRankScope rank(1);
  log_message(LogLevel::kInfo, "to the file");
}

TEST(LogFileTest, MessagesGoToTheNamedFile) {
  const std::string base = testing::TempDir() + "ringbell_log_" + std::to_string(getpid());
  const std::string text = run_child(base + ".%r", "info", base + ".1");
  EXPECT_NE(text.find("ringbell: info: rank 1: to the file"), std::string::npos) << text;
  std::remove((base + ".1").c_str());
}

// Below a regular file: root cannot write there, either.
TEST(LogFileTest, AFileThatCannotBeWrittenIsNoFailure) {
  const std::string file = testing::TempDir() + "ringbell_log_file_" + std::to_string(getpid());
  std::ofstream(file) << "x";
  testing::internal::CaptureStderr();
  run_child(file + "/x", "info", "/dev/null");
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("RINGBELL_LOG_FILE='" + file + "/x' cannot be written"), std::string::npos) << err;
  EXPECT_NE(err.find("ringbell: info: rank 1: to the file"), std::string::npos) << err;
  std::remove(file.c_str());
}

TEST(LogFileTest, AFolderThatIsMissingIsReportedAndNotMade) {
  const std::string folder = testing::TempDir() + "ringbell_no_folder_" + std::to_string(getpid());
  testing::internal::CaptureStderr();
  run_child(folder + "/deep/x", "info", "/dev/null");
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("cannot be written (there is no folder " + folder + "/deep)"), std::string::npos) << err;
  EXPECT_NE(err.find("ringbell: info: rank 1: to the file"), std::string::npos) << err;
  EXPECT_NE(access(folder.c_str(), F_OK), 0) << "it was made";
}

TEST(LogFileTest, ABadLevelIsNoFailureHere) { run_child("/dev/null", "loud", "/dev/null"); }

}  // namespace
}  // namespace ringbell::host
