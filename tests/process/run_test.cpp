// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=90
//
// `ringbell run`: ranks start with their variables, end together, and leave nothing.
#include <algorithm>
#include <chrono>
#include <set>

#include <gtest/gtest.h>
#include <signal.h>

#include "host/env.hpp"
#include "host/launch_env.hpp"
#include "host/unique_id.hpp"
#include "tests/support/program.hpp"

namespace ringbell::test {
namespace {

double seconds_of(const std::chrono::steady_clock::time_point& begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Run, SetsTheVariablesOfEveryRank) {
  const Outcome run = run_program(
      "unset MASTER_ADDR MASTER_PORT; $RINGBELL run -n 3 --device cpu -- sh -c 'echo $RINGBELL_RANK $RINGBELL_WORLD "
      "$RINGBELL_LOCAL_RANK "
      "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $RINGBELL_DEVICE $MASTER_ADDR $MASTER_PORT $RINGBELL_SESSION'");
  ASSERT_EQ(run.code, 0) << run.err;
  auto lines = lines_of(run.out);
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 3U) << run.out;
  std::set<std::string> ports;
  std::set<std::string> sessions;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    const auto words = words_of(lines[rank]);
    ASSERT_EQ(words.size(), 11U) << lines[rank];
    const std::string number = std::to_string(rank);
    EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 9),
              (std::vector<std::string>{number, "3", number, number, "3", number, "3", "cpu", "127.0.0.1"}));
    ports.insert(words[9]);
    sessions.insert(words[10]);
  }
  EXPECT_EQ(ports.size(), 1U);
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions.begin()->size(), 32U);
}

TEST(Run, EverySessionHasAnotherName) {
  const std::string line = "$RINGBELL run -n 1 -- sh -c 'echo $RINGBELL_SESSION'";
  EXPECT_NE(run_program(line).out, run_program(line).out);
}

TEST(Run, TheSessionIsInNoArgumentList) {
  const Outcome run = run_program(
      "exec $RINGBELL run -n 1 -- sh -c 'cat /proc/$PPID/cmdline /proc/$$/cmdline; echo; echo $RINGBELL_SESSION'");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto lines = lines_of(run.out);
  ASSERT_EQ(lines.size(), 2U) << run.out;
  EXPECT_EQ(lines[0].find(lines[1]), std::string::npos);
}

TEST(Run, TheCommandIsPassedOnAsItIs) {
  const Outcome run = run_program("$RINGBELL run -n 1 -- printf '%s|' --tag -n 7 -- '[a,b]' '' 'x y' --help");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "--tag|-n|7|--|[a,b]||x y|--help|");
}

TEST(Run, TheFirstFailingRankGivesTheCode) {
  EXPECT_EQ(run_program("$RINGBELL run -n 3 -- sh -c 'test $RANK = 1 && exit 7; exec sleep 30'", 20).code, 7);
  EXPECT_EQ(run_program("$RINGBELL run -n 3 -- sh -c 'test $RANK = 2 && kill -9 $$; exec sleep 30'", 20).code, 128 + 9);
  EXPECT_EQ(run_program("$RINGBELL run -n 3 -- true", 20).code, 0);
}

TEST(Run, SaysOnceWhichRankFailedFirstAndHow) {
  EXPECT_EQ(run_program("$RINGBELL run -n 3 -- sh -c 'test $RANK = 1 && exit 3; exec sleep 30'", 20).err,
            "ringbell run: rank 1 exited with code 3\n");
  EXPECT_EQ(run_program("$RINGBELL run -n 3 -- sh -c 'test $RANK = 2 && kill -9 $$; exec sleep 30'", 20).err,
            "ringbell run: rank 2 was ended by signal 9\n");
  EXPECT_EQ(run_program("$RINGBELL run -n 2 -- sh -c 'kill -PIPE $$'", 20).err, "");
  EXPECT_EQ(run_program("$RINGBELL run -n 2 -- true", 20).err, "");
}

TEST(Run, TheOthersGetSigtermAndAfterFiveSecondsSigkill) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome polite = run_program(
      "$RINGBELL run -n 2 -- sh -c 'trap \"echo asked; exit 0\" TERM; test $RANK = 1 && sleep 0.5 && exit 3; "
      "while :; do sleep 0.1; done'",
      20);
  EXPECT_EQ(polite.code, 3);
  EXPECT_EQ(polite.out, "asked\n");
  EXPECT_LT(seconds_of(begin), 4);
  const auto stubborn_begin = std::chrono::steady_clock::now();
  const Outcome stubborn = run_program(
      "$RINGBELL run -n 2 -- sh -c 'trap \"\" TERM; test $RANK = 1 && sleep 0.3 && exit 3; "
      "while :; do sleep 0.1; done'",
      20);
  EXPECT_EQ(stubborn.code, 3);
  EXPECT_GT(seconds_of(stubborn_begin), 4.9);
  EXPECT_LT(seconds_of(stubborn_begin), 9);
}

TEST(Run, TagPrefixesEveryLine) {
  const Outcome run =
      run_program("$RINGBELL run -n 2 --tag -- sh -c 'echo one; echo two; printf three; echo four >&2'");
  ASSERT_EQ(run.code, 0) << run.err;
  auto lines = lines_of(run.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] one", "[0] three", "[0] two", "[1] one", "[1] three", "[1] two"}));
  auto errors = lines_of(run.err);
  std::sort(errors.begin(), errors.end());
  EXPECT_EQ(errors, (std::vector<std::string>{"[0] four", "[1] four"}));
}

TEST(Run, SignalsArePassedOn) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string folder = make_folder();
    Running run(
        "cd " + folder +
            // The second rank gets SIGTERM as soon as the first has ended: by then it must have stopped listening.
            " && exec $RINGBELL run -n 2 -- sh -c 'trap \"trap : INT TERM HUP; echo got; exit 9\" INT TERM HUP; "
            ": > $RANK; "
            "while :; do sleep 0.05; done'",
        20);
    ASSERT_TRUE(eventually([&] { return file_exists(folder + "/0") && file_exists(folder + "/1"); }));
    kill(run.pid(), number);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.code, 9) << number;
    EXPECT_EQ(outcome.out, "got\ngot\n") << number;
    remove_folder(folder);
  }
}

TEST(Run, ASignalWithoutAHandlerEndsAllWith128PlusIt) {
  Running run("exec $RINGBELL run -n 2 -- sleep 30", 20);
  ASSERT_TRUE(eventually([&] { return children_of(run.pid()).size() == 2; }));
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
}

TEST(Run, RanksDieWithTheLauncher) {
  Running run("exec $RINGBELL run -n 3 -- sleep 30", 20);
  ASSERT_TRUE(eventually([&] { return children_of(run.pid()).size() == 3; }));
  const auto ranks = children_of(run.pid());
  kill(run.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return std::none_of(ranks.begin(), ranks.end(), is_alive); }, 5));
  EXPECT_EQ(run.wait().code, 128 + SIGKILL);
}

TEST(Run, ASessionThatDiesDuringSetUpLeavesNoSegment) {
  // Rank 0 makes the segment and waits for a peer that never joins.
  const std::string folder = make_folder();
  Running run("cd " + folder +
                  " && exec $RINGBELL run -n 2 --device cpu -- sh -c 'if test $RANK = 0; then exec $RINGBELL perf "
                  "--sizes 8; fi; "
                  "echo $RINGBELL_SESSION > new && mv new session; exec sleep 30'",
              30);
  const std::string session_file = folder + "/session";
  ASSERT_TRUE(eventually([&] { return file_exists(session_file); }));
  const std::string session = words_of(file_text(session_file)).at(0);
  const host::Launch launch =
      host::resolve_launch(host::Env({{"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "2"}, {"RINGBELL_SESSION", session}}));
  const std::string segment = "/dev/shm" + host::unique_id_segment_name(host::unique_id_from_key(launch.session_key));
  ASSERT_TRUE(eventually([&] { return file_exists(segment); }));
  for (const pid_t rank : children_of(run.pid())) kill(rank, SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  const auto errors = lines_of(outcome.err);
  ASSERT_EQ(errors.size(), 1U) << outcome.err;
  EXPECT_TRUE(errors[0] == "ringbell run: rank 0 was ended by signal 9" ||
              errors[0] == "ringbell run: rank 1 was ended by signal 9")
      << errors[0];
  EXPECT_FALSE(file_exists(segment));
  remove_folder(folder);
}

}  // namespace
}  // namespace ringbell::test
