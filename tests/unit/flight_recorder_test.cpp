// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The last calls of a rank: what is kept, what is overwritten, what is read while others write; the file that they
// make.
#include "runtime/flight_recorder.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "runtime/flight_dump.hpp"
#include "tools/exit_codes.hpp"
#include "tools/why_dumps.hpp"

namespace ringbell {
namespace {

device::Command command(std::uint64_t count) {
  device::Command made{};
  made.kind = device::CommandKind::kAllReduce;
  made.count = count;
  made.tag = ~count;
  made.dtype = DType::kUInt64;
  made.op = ReduceOp::kAvg;
  made.algorithm = Algorithm::kRing;
  made.protocol = Protocol::kSimple;
  made.channels = 0xffff;
  return made;
}

TEST(FlightRecorder, KeepsTheLast256InOrderWithAllThatRanksCompare) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.records().empty());
  for (std::uint64_t seq = 0; seq < 1000; ++seq) {
    recorder.submitted(seq, command(seq), host::read_ticks());
    if (seq % 2 == 0) recorder.completed(seq, Status::kOk);
  }
  const std::vector<FlightRecord> records = recorder.records();
  ASSERT_EQ(records.size(), FlightRecorder::kRecords);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const FlightRecord& record = records[i];
    EXPECT_EQ(record.seq, 1000 - FlightRecorder::kRecords + i);
    EXPECT_EQ(record.command.count, record.seq);
    EXPECT_EQ(record.command.tag, ~record.seq);
    EXPECT_EQ(record.command.kind, device::CommandKind::kAllReduce);
    EXPECT_EQ(record.command.dtype, DType::kUInt64);
    EXPECT_EQ(record.command.op, ReduceOp::kAvg);
    EXPECT_EQ(record.command.algorithm, Algorithm::kRing);
    EXPECT_EQ(record.command.protocol, Protocol::kSimple);
    EXPECT_EQ(record.command.channels, 0xffff);
    EXPECT_EQ(record.status, record.seq % 2 == 0 ? Status::kOk : Status::kPending);
    EXPECT_EQ(record.seen_ns != 0, record.seq % 2 == 0);
  }
}

TEST(FlightRecorder, TimesAreThoseOfTheMonotonicClock) {
  FlightRecorder recorder;
  host::sleep_ns(20'000'000);
  const std::uint64_t before = host::monotonic_ns();
  recorder.submitted(0, command(1), host::read_ticks());
  host::sleep_ns(20'000'000);
  recorder.completed(0, Status::kTimeout);
  const std::uint64_t after = host::monotonic_ns();
  host::sleep_ns(20'000'000);
  const FlightRecord record = recorder.records().at(0);
  constexpr std::uint64_t kSlack = 2'000'000;
  EXPECT_GE(record.submitted_ns + kSlack, before);
  EXPECT_GE(record.seen_ns, record.submitted_ns + 20'000'000 - kSlack);
  EXPECT_LE(record.seen_ns, after + kSlack);
  EXPECT_EQ(record.status, Status::kTimeout);
}

TEST(FlightRecorder, ACompletionOfACallThatWasOverwrittenChangesNothing) {
  FlightRecorder recorder;
  recorder.submitted(3, command(3), 1);
  recorder.submitted(3 + FlightRecorder::kRecords, command(9), 2);
  recorder.completed(3, Status::kTimeout);
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].command.count, 9u);
  EXPECT_EQ(records[0].status, Status::kPending);
}

TEST(FlightRecorder, IsReadWhileOthersWriteAndGivesNoHalfOfTwoCalls) {
  FlightRecorder recorder;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t seq = 0; seq < 300'000; ++seq) {
      recorder.submitted(seq, command(seq), seq);
      recorder.completed(seq, Status::kOk);
    }
    done = true;
  });
  while (!done) {
    for (const FlightRecord& record : recorder.records()) {
      ASSERT_EQ(record.command.count, record.seq);
      ASSERT_EQ(record.command.tag, ~record.seq);
    }
  }
  writer.join();
}

FlightDump some_dump(int rank, std::uint64_t calls) {
  FlightDump dump;
  dump.version = "0.1.0";
  dump.session = "/ringbell-0-0123456789abcdef";
  dump.rank = rank;
  dump.world = 3;
  dump.pid = static_cast<std::uint32_t>(10 + rank);
  dump.dumped_ns = 77;
  dump.submitted = calls;
  dump.completed = calls - 1;
  dump.stream_calls = 4;
  dump.failure = {Status::kTimeout, calls - 1, true, 0, 2, 6, "header", "a text with \"quotes\" and \xff"};
  for (std::uint64_t seq = 0; seq < calls; ++seq) dump.records.push_back({seq, command(seq), 5, 0, Status::kPending});
  return dump;
}

TEST(FlightDump, IsReadBackAsItWasWritten) {
  const FlightDump dump = some_dump(1, 3);
  EXPECT_EQ(dump_file_name(dump), "ringbell-0123456789abcdef-rank1-11.json");
  const FlightDump read = tools::parse_dump("file", dump_text(dump));
  EXPECT_EQ(read.session, dump.session);
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.world, 3);
  EXPECT_EQ(read.pid, 11u);
  EXPECT_EQ(read.submitted, 3u);
  EXPECT_EQ(read.completed, 2u);
  EXPECT_EQ(read.stream_calls, 4u);
  EXPECT_EQ(read.failure.status, Status::kTimeout);
  EXPECT_EQ(read.failure.seq, 2u);
  EXPECT_TRUE(read.failure.launched);
  EXPECT_EQ(read.failure.reporter, 0);
  EXPECT_EQ(read.failure.peer, 2);
  EXPECT_EQ(read.failure.step, 6u);
  EXPECT_EQ(read.failure.awaited, "header");
  EXPECT_EQ(read.failure.text.substr(0, 24), "a text with \"quotes\" and");
  ASSERT_EQ(read.records.size(), 3u);
  EXPECT_EQ(read.records[2].command.tag, ~std::uint64_t{2});
  EXPECT_EQ(read.records[2].command.channels, 0xffff);
  EXPECT_EQ(read.records[2].status, Status::kPending);
  EXPECT_EQ(read.records[1].status, Status::kOk);  // complete, and nobody had asked
  EXPECT_EQ(read.records[1].seen_ns, 0u);
}

TEST(FlightDump, EveryByteThatIsCutOffIsNoticed) {
  const std::string text = dump_text(some_dump(0, 2));
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_THROW((void)tools::parse_dump("file", text.substr(0, length)), tools::ExitError) << length;
  }
}

TEST(FlightDump, TheFirstDifferenceIsTheFirstCallThatDiffersOrThatARankHasNotMade) {
  std::vector<FlightDump> dumps{some_dump(0, 5), some_dump(1, 5), some_dump(2, 5)};
  EXPECT_EQ(tools::first_difference(dumps), "");
  dumps[2] = some_dump(2, 4);
  EXPECT_EQ(tools::first_difference(dumps).substr(0, 24), "first difference: call 4");
  EXPECT_NE(tools::first_difference(dumps).find("not made by rank 2"), std::string::npos);
  dumps[1].records[3].command.op = ReduceOp::kMax;
  EXPECT_EQ(tools::first_difference(dumps).substr(0, 24), "first difference: call 3");
  // What one rank has overwritten is not compared.
  dumps[0].records.erase(dumps[0].records.begin(), dumps[0].records.begin() + 4);
  EXPECT_EQ(tools::first_difference(dumps).substr(0, 24), "first difference: call 4");
}

TEST(FlightDump, DumpsOfTwoSessionsOrTwoOfOneRankAreRefused) {
  std::vector<FlightDump> dumps{some_dump(0, 5), some_dump(0, 5)};
  EXPECT_THROW((void)tools::merge_dumps(dumps, {"a", "b"}), tools::ExitError);
  dumps[1] = some_dump(1, 5);
  EXPECT_EQ(tools::merge_dumps(dumps, {"a", "b"}).ranks.size(), 3u);
  dumps[1].session = "/ringbell-0-fedcba9876543210";
  EXPECT_THROW((void)tools::merge_dumps(dumps, {"a", "b"}), tools::ExitError);
}

}  // namespace
}  // namespace ringbell
