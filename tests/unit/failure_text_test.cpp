// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Failure records in words: rank, call, step, what was awaited, what was seen, what to ask.
#include "runtime/failure_text.hpp"

#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"

namespace ringbell {
namespace {

constexpr std::uint64_t kTimeoutNs = 2'500'000'000;

device::WaitRecord record(Status status) {
  device::WaitRecord r{};
  r.status = status;
  r.seq = 41;
  r.step = 3;
  r.reporter = 1;
  r.peer = 2;
  r.what = device::WaitFor::kLine;
  r.expected = 77;
  r.seen = 76;
  return r;
}
std::uint64_t packed(DType dtype, ReduceOp op, Protocol protocol) {
  return static_cast<std::uint64_t>(dtype) | static_cast<std::uint64_t>(op) << 8 |
         static_cast<std::uint64_t>(Algorithm::kRing) << 16 | static_cast<std::uint64_t>(protocol) << 24;
}
void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

TEST(FailureText, OfATimeOutSaysWhoWaitedForWhatOfWhom) {
  device::WaitRecord r = record(Status::kTimeout);
  expect_parts(failure_text(r, 1, kTimeoutNs),
               {"call 41", "step 3", "rank 1 waited in vain for the data line of rank 2", "expected 77", "last seen 76",
                "for 2.5 s", "is rank 2 making the same calls?",
                "If it is only slow, raise RINGBELL_TIMEOUT_S / Config::timeout_s"});
  r.what = device::WaitFor::kTail;
  expect_parts(failure_text(r, 1, kTimeoutNs), {"tail of rank 2"});
  r.what = device::WaitFor::kCredit;
  expect_parts(failure_text(r, 1, kTimeoutNs), {"credit of rank 2"});
  r.what = device::WaitFor::kHeader;
  expect_parts(failure_text(r, 1, kTimeoutNs), {"header of rank 2"});
  r.what = static_cast<device::WaitFor>(99);
  expect_parts(failure_text(r, 1, kTimeoutNs), {"unknown"});
}

// The record of a rank that was told holds its own item, step and values beside the peer's and the awaited rank's
// number.
TEST(FailureText, OfATimeOutToldByAPeerLeavesOutWhatTheReporterDidNotWaitFor) {
  const device::WaitRecord r = record(Status::kTimeout);
  for (unsigned rank : {0u, 2u, 3u}) {
    const std::string text = failure_text(r, rank, kTimeoutNs);
    expect_parts(text, {"call 41", "rank 1 waited in vain for the part of rank 2", "for 2.5 s",
                        "is rank 2 making the same calls?", "RINGBELL_TIMEOUT_S"});
    for (const char* own : {"data line", "step 3", "77", "76"})
      EXPECT_EQ(text.find(own), std::string::npos) << "'" << own << "' in: " << text;
    EXPECT_EQ(text.find("this one") != std::string::npos, rank == 2) << text;
  }
}

TEST(FailureText, OfAWorkerThatDidNotStartInTimeSaysSoOnThePeers) {
  device::WaitRecord r = record(Status::kTimeout);
  r.peer = r.reporter;
  expect_parts(failure_text(r, 0, kTimeoutNs), {"call 41", "the worker of rank 1 did not start in 2.5 s"});
}

TEST(FailureText, OfAMismatchNamesBothRanksAndWhatEachHad) {
  device::WaitRecord r = record(Status::kMismatch);
  r.my_count = 100;
  r.peer_count = 200;
  r.mine = r.theirs = packed(DType::kFloat32, ReduceOp::kSum, Protocol::kLL);
  expect_parts(failure_text(r, 1, kTimeoutNs),
               {"rank 1 has count 100", "rank 2 has count 200", "call 41", "all ranks must make the same call"});
  r.peer_count = 100;
  r.theirs = packed(DType::kInt64, ReduceOp::kMax, Protocol::kSimple);
  expect_parts(failure_text(r, 1, kTimeoutNs),
               {"rank 1 has count 100 (float32 sum", "LL)", "rank 2 has count 100 (int64 max", "Simple)"});
  r.theirs = r.mine;
  expect_parts(failure_text(r, 1, kTimeoutNs), {"rank 1 and rank 2 disagree on call 41", "tag"});
}

TEST(FailureText, OfALossAndAnAbortNameTheRank) {
  expect_parts(failure_text(record(Status::kPeerLost), 1, kTimeoutNs), {"rank 2 is gone", "rank 1"});
  expect_parts(failure_text(record(Status::kAborted), 1, kTimeoutNs), {"rank 1 aborted", "call 41"});
}

TEST(FailureText, SurvivesGarbage) {
  device::WaitRecord r{};
  auto* bytes = reinterpret_cast<unsigned char*>(&r);
  for (int value = 0; value < 256; ++value) {
    for (std::size_t i = 0; i < sizeof r; ++i) bytes[i] = static_cast<unsigned char>(value + static_cast<int>(i));
    EXPECT_FALSE(failure_text(r, 1, kTimeoutNs).empty());
  }
}

}  // namespace
}  // namespace ringbell
