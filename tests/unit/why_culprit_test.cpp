// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Whom everybody waits for, from what is known of each rank: who goes first when several could be named.
#include "tools/why_culprit.hpp"

#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"

namespace ringbell::tools {
namespace {

using session::Awaited;
using session::Call;
using session::ProcessState;
using session::RankView;
using session::SessionView;

Call call(std::uint64_t seq, std::uint64_t count = 100) {
  Call made{seq, false, {}};
  made.command.kind = device::CommandKind::kAllReduce;
  made.command.count = count;
  return made;
}

/// `world` ranks that have completed calls 0 to 4 and run.
SessionView group(int world) {
  SessionView session;
  for (int rank = 0; rank < world; ++rank) {
    RankView view;
    view.rank = rank;
    view.pid = static_cast<std::uint32_t>(100 + rank);
    view.process = ProcessState::kRunning;
    view.joined = true;
    view.completed = 5;
    view.worker = device::Residency::kRunning;
    session.ranks.push_back(view);
  }
  return session;
}

class WhyCulprit : public testing::Test {
 protected:
  void in_call(int rank) { at(rank).current = call(5); }
  void waits_for(int rank, int peer, const char* what = "data line", std::uint32_t step = 0) {
    in_call(rank);
    at(rank).awaited = Awaited{5, step, what, peer, 1'000'000'000};
  }
  RankView& at(int rank) { return session_.ranks[static_cast<std::size_t>(rank)]; }
  void expect(Finding finding, const std::vector<int>& ranks, const std::vector<int>& waiting,
              const std::vector<std::string>& words) {
    const Culprit culprit = find_culprit(session_);
    EXPECT_EQ(culprit.finding, finding) << culprit.text;
    EXPECT_EQ(culprit.ranks, ranks) << culprit.text;
    EXPECT_EQ(culprit.waiting, waiting) << culprit.text;
    for (const std::string& part : words) {
      EXPECT_NE(culprit.text.find(part), std::string::npos) << "'" << part << "' in: " << culprit.text;
    }
  }
  SessionView session_ = group(4);
};

TEST_F(WhyCulprit, IsNobodyWhereNobodyWaitsWhateverTheProcessesDo) {
  expect(Finding::kNobodyWaits, {}, {}, {"nobody waits"});
  in_call(0);
  at(1).process = ProcessState::kStopped;
  at(2).process = ProcessState::kGone;
  at(3).left = true;
  expect(Finding::kNobodyWaits, {}, {}, {"nobody waits"});
}

TEST_F(WhyCulprit, IsWhoIsGoneBeforeWhoIsStoppedBeforeWhoMissesACall) {
  waits_for(0, 3);
  waits_for(3, 2);
  at(1).process = ProcessState::kGone;
  at(2).process = ProcessState::kStopped;
  expect(Finding::kSomebodyWaits, {1}, {0, 3}, {"culprit: rank 1 (pid 101): its process is gone before call 5"});
  at(1).process = ProcessState::kRunning;
  expect(Finding::kSomebodyWaits, {2}, {0, 3},
         {"rank 2 (pid 102): before call 5, its process is stopped; kill -CONT 102"});
  at(2).process = ProcessState::kRunning;
  expect(Finding::kSomebodyWaits, {2}, {0, 3}, {"rank 2 (pid 102): it has not made call 5", "its last was call 4"});
}

TEST_F(WhyCulprit, OfTwoStoppedRanksIsTheOneThatIsWaitedFor) {
  waits_for(0, 3, "header");
  in_call(1);
  at(1).process = ProcessState::kStopped;
  at(3).process = ProcessState::kTraced;
  at(3).tracer = 77;
  expect(Finding::kSomebodyWaits, {3}, {0}, {"stopped by a debugger, pid 77", "rank 0 waits for it"});
}

TEST_F(WhyCulprit, IsWhoHasLeft) {
  waits_for(0, 1, "header");
  at(1).left = true;
  at(1).process = ProcessState::kRunning;
  expect(Finding::kSomebodyWaits, {1}, {0}, {"it has left the group before call 5"});
}

TEST_F(WhyCulprit, IsTheEndOfAChainOfWaits) {
  waits_for(0, 3);
  waits_for(3, 2);
  waits_for(2, 1);
  in_call(1);
  expect(Finding::kSomebodyWaits, {1}, {0, 2, 3}, {"it is in call 5 and waits for nobody"});
}

TEST_F(WhyCulprit, IsWhoKeepsItsOwnWorkerAway) {
  waits_for(0, 1);
  in_call(2);
  in_call(3);
  in_call(1);
  at(1).worker = device::Residency::kParked;
  expect(Finding::kSomebodyWaits, {1}, {0}, {"its worker has not begun call 5"});
  at(1).kept_parked = true;
  expect(Finding::kSomebodyWaits, {1}, {0}, {"it keeps its own worker parked", "leave the scope"});
  at(1).current->after_stream = true;
  expect(Finding::kSomebodyWaits, {1}, {0}, {"its call 5 comes after a stream that has not got there"});
}

TEST_F(WhyCulprit, OfRanksThatWaitForEachOtherIsTheOneFurthestBehind) {
  waits_for(0, 3, "data line", 4);
  waits_for(1, 0, "data line", 3);
  waits_for(2, 1, "data line", 2);
  waits_for(3, 2, "data line", 3);
  expect(Finding::kSomebodyWaits, {2}, {0, 1, 3}, {"ranks 0, 1, 2 and 3 wait for each other", "in call 5 step 2"});
  at(2).awaited->peer = 2;  // garbage of a process that writes what it likes
  expect(Finding::kSomebodyWaits, {2}, {0, 1, 3}, {"rank 2"});
  at(2).awaited->peer = 200;
  expect(Finding::kSomebodyWaits, {2}, {0, 1, 3}, {"rank 2"});
}

TEST_F(WhyCulprit, OfALaunchedCallIsWhoIsWaitedForThere) {
  at(0).stream_awaited = Awaited{9, 0, "header", 1, 0};
  expect(Finding::kSomebodyWaits, {1}, {0}, {"it has not made launched call 9, or its stream has not come to it"});
}

TEST_F(WhyCulprit, InSetUpIsWhoHasNotCome) {
  for (RankView& rank : session_.ranks) rank.joined = false;
  at(1).pid = 0;
  at(3).pid = 0;
  expect(Finding::kSomebodyWaits, {1, 3}, {0, 2}, {"ranks 1 and 3 are waited for in set-up", "have not come"});
  at(2).process = ProcessState::kStopped;
  expect(Finding::kSomebodyWaits, {2}, {0, 2}, {"rank 2 is waited for", "rank 2 (pid 102): its process is stopped"});
}

TEST_F(WhyCulprit, OfAMismatchIsTheMinorityAndEverybodyWhereThereIsNone) {
  for (RankView& rank : session_.ranks) {
    rank.failure = {Status::kMismatch, 5, false, 0, 3, 0, "", "rank 0 and rank 3 differ"};
    rank.failed_call = call(5);
  }
  at(3).failed_call = call(5, 99);
  expect(Finding::kBroken, {3}, {},
         {"rank 3 differs from the others in call 5", "ranks 0, 1 and 2 made it as", "count 100", "rank 3 made it as",
          "count 99"});
  at(2).failed_call = call(5, 99);
  expect(Finding::kBroken, {0, 1, 2, 3}, {}, {"ranks 0, 1, 2 and 3 differ in call 5"});
  for (RankView& rank : session_.ranks) rank.failed_call.reset();
  expect(Finding::kBroken, {0, 3}, {}, {"ranks 0 and 3: rank 0 and rank 3 differ"});
}

TEST_F(WhyCulprit, OfTagsAloneSaysTheTags) {
  session_ = group(2);
  for (RankView& rank : session_.ranks) {
    rank.failure = {Status::kMismatch, 5, false, 0, 1, 0, "", "tags"};
    rank.failed_call = call(5);
    rank.failed_call->command.tag = static_cast<std::uint64_t>(rank.rank + 7);
  }
  expect(Finding::kBroken, {0, 1}, {}, {" tag 7", " tag 8"});
}

TEST_F(WhyCulprit, OfATimeOutIsWhomItWasAboutWithWhatItDoesNow) {
  at(0).failure = {Status::kTimeout, 5, false, 0, 2, 1, "header", "rank 0 waited in vain for rank 2"};
  at(1).failure = {Status::kAborted, 5, false, 1, 1, 0, "", "rank 1 aborted"};
  at(2).process = ProcessState::kStopped;
  expect(Finding::kBroken, {2}, {},
         {"culprit: rank 2 (pid 102): rank 0 waited in vain for rank 2; its process is stopped"});
}

TEST(WhyText, NamesRanksAsPeopleDo) {
  EXPECT_EQ(ranks_text({2}), "rank 2");
  EXPECT_EQ(ranks_text({0, 2}), "ranks 0 and 2");
  EXPECT_EQ(ranks_text({0, 1, 3}), "ranks 0, 1 and 3");
}

}  // namespace
}  // namespace ringbell::tools
