// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-test: timeout=180
//
// Launched calls: eager on streams and captured in graphs, beside host-issued calls, and how they end when ranks
// disagree, overlap, abort or leave.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/buffers.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

using Values = std::vector<std::int64_t>;

std::string ok_or_text(Communicator& comm, Status status) {
  return status == Status::kOk ? "" : std::string(status_name(status)) + ": " + comm.last_error();
}
Status sum_on(Communicator& comm, HostStream& stream, const Values& in, Values& out, std::uint64_t tag = 0) {
  CallOptions options;
  options.tag = tag;
  return comm.all_reduce_on(&stream, in.data(), out.data(), in.size(), DType::kInt64, ReduceOp::kSum, options);
}
/// What every element must be when rank r contributed base * (r + 1).
std::string expect_sum(const Values& out, std::int64_t base, int world) {
  const std::int64_t expected = base * world * (world + 1) / 2;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != expected)
      return "element " + std::to_string(i) + " is " + std::to_string(out[i]) + ", not " + std::to_string(expected);
  }
  return "";
}
void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}
void fill(Values& values, std::int64_t value) { values.assign(values.size(), value); }
bool all_ones(const Values& values) {
  for (const std::int64_t value : values) {
    if (value != -1) return false;
  }
  return true;
}

TEST(Launched, GivesTheSameBitsAsTheReferenceForEveryPairOfTypeOperationAlignmentAndPlacement) {
  for (const int world : {1, 2, 3, 5}) {
    std::vector<AllReduceCase> cases;
    std::size_t turn = static_cast<std::size_t>(world);
    for (AllReduceCase c : pairwise_rows()) {
      if (++turn % 2 == 0 && world > 2) continue;
      c.protocol = kProtocols[turn % 3];
      c.count = turn % 11 == 0 ? 0 : turn * 131 % 2500;
      cases.push_back(c);
    }
    Config config = cpu_config();
    config.slot_bytes = 1920;
    EXPECT_EQ(suite_failure(cases, run_on_threads(world, config, cases, 7, 120,
                                                  [] {
                                                    auto stream = std::make_shared<HostStream>();
                                                    return CallWay([stream](Communicator& comm, const void* in,
                                                                            void* out, const AllReduceCase& c,
                                                                            const CallOptions& options) {
                                                      const Status status = comm.all_reduce_on(
                                                          stream.get(), in, out, c.count, c.dtype, c.op, options);
                                                      return status == Status::kOk ? comm.check(stream.get()) : status;
                                                    });
                                                  })),
              "");
  }
}

TEST(CaseC18, CapturedCallsAreRightOnEveryReplayWithNewInputsBesideEagerAndHostIssuedOnes) {
  for (const int world : {2, 3}) {
    expect_empty(run_ranks(world, cpu_config(), [&](Communicator& comm) -> std::string {
      const int replays = is_sanitized() ? 100 : 1000;
      HostStream stream;
      Values in[3] = {Values(1), Values(200), Values(5000)};
      Values out[3] = {Values(1), Values(200), Values(5000)};
      stream.begin_capture();
      for (int i = 0; i < 3; ++i) {
        if (std::string text = ok_or_text(comm, sum_on(comm, stream, in[i], out[i])); !text.empty()) return text;
      }
      const HostGraph graph = stream.end_capture();
      Values eager(64);
      Values host(32);
      Values host_out(32);
      for (int replay = 1; replay <= replays; ++replay) {
        for (int i = 0; i < 3; ++i) {
          fill(in[i], (comm.rank() + 1) * (replay * 3 + i));
          fill(out[i], -7);
        }
        fill(eager, (comm.rank() + 1) * replay);
        fill(host, (comm.rank() + 1) * (replay + 5));
        const Ticket ticket = comm.all_reduce(host.data(), host_out.data(), host.size(), DType::kInt64);
        stream.replay(graph);
        if (replay % 3 == 0) {
          if (std::string text = ok_or_text(comm, sum_on(comm, stream, eager, eager)); !text.empty()) return text;
        }
        if (std::string text = ok_or_text(comm, comm.check(&stream)); !text.empty()) return text;
        if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
        for (int i = 0; i < 3; ++i) {
          if (std::string text = expect_sum(out[i], replay * 3 + i, world); !text.empty()) {
            return "replay " + std::to_string(replay) + " call " + std::to_string(i) + ": " + text;
          }
        }
        if (replay % 3 == 0 && !expect_sum(eager, replay, world).empty()) return "an eager call is wrong";
        if (!expect_sum(host_out, replay + 5, world).empty()) return "a host-issued call is wrong";
      }
      return "";
    }));
  }
}

TEST(CaseC18, AGraphCapturedOnOneStreamMayBeReplayedOnAnother) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    HostStream captured;
    HostStream other;
    Values in(30);
    Values out(30);
    captured.begin_capture();
    if (std::string text = ok_or_text(comm, sum_on(comm, captured, in, out)); !text.empty()) return text;
    const HostGraph graph = captured.end_capture();
    for (int replay = 1; replay <= 50; ++replay) {
      HostStream& stream = replay % 2 == 0 ? captured : other;
      fill(in, (comm.rank() + 1) * replay);
      stream.replay(graph);
      if (std::string text = ok_or_text(comm, comm.check(&stream)); !text.empty()) return text;
      if (std::string text = expect_sum(out, replay, 2); !text.empty()) return text;
    }
    return "";
  }));
}

TEST(CaseC14, CallsOfOneCommunicatorOnTwoStreamsRunInTheOrderInWhichTheyWereMade) {
  expect_empty(run_ranks(3, cpu_config(), [](Communicator& comm) -> std::string {
    const int calls = is_sanitized() ? 300 : 3000;
    HostStream streams[2];
    Values values(16, comm.rank() + 1);
    // Each call reads what the one before on the other stream has written.
    std::int64_t expected = 6;
    for (int call = 0; call < calls; ++call) {
      if (std::string text = ok_or_text(comm, sum_on(comm, streams[call % 2], values, values)); !text.empty())
        return text;
      if (call % 20 == 19) {
        if (std::string text = ok_or_text(comm, comm.check(&streams[call % 2])); !text.empty()) return text;
        for (const std::int64_t value : values) {
          if (value != expected) return "call " + std::to_string(call) + ": " + std::to_string(value);
        }
        fill(values, comm.rank() + 1);
        expected = 2;
      }
      expected = (call % 20 == 19) ? 6 : expected * 3;
    }
    return "";
  }));
}

TEST(CaseC14, TwoThreadsThatIssueOnTheirOwnStreamsGetATotalOrderOrAnErrorThatNamesIt) {
  // Equal calls in any interleaving: all right.
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    const int calls = is_sanitized() ? 100 : 1000;
    return run_threads(2, [&](int thread) -> std::string {
      HostStream stream;
      Values in(8);
      Values out(8);
      for (int call = 1; call <= calls; ++call) {
        fill(in, comm.rank() + 1);
        if (std::string text = ok_or_text(comm, sum_on(comm, stream, in, out)); !text.empty()) return text;
        if (std::string text = ok_or_text(comm, comm.check(&stream)); !text.empty()) return text;
        if (std::string text = expect_sum(out, 1, 2); !text.empty()) return std::to_string(thread) + ": " + text;
      }
      return "";
    })[0];
  }));
}

TEST(CaseC14, TwoGraphsReplayedAtOnceAreAnErrorAtOnceAndNeverMixed) {
  // Rank 1 keeps rank 0's first replay waiting, so that the second one overlaps it for certain.
  std::atomic<bool> overlapped{false};
  expect_empty(run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    HostStream streams[2];
    Values in[2] = {Values(40, comm.rank() + 1), Values(40, comm.rank() + 1)};
    Values out[2] = {Values(40), Values(40)};
    HostGraph graphs[2];
    for (int i = 0; i < 2; ++i) {
      streams[i].begin_capture();
      if (std::string text = ok_or_text(comm, sum_on(comm, streams[i], in[i], out[i])); !text.empty()) return text;
      graphs[i] = streams[i].end_capture();
    }
    if (comm.rank() == 0) {
      streams[0].replay(graphs[0]);
      sleep_s(0.02);
      streams[1].replay(graphs[1]);
      sleep_s(0.05);
      overlapped = true;
    } else {
      while (!overlapped) sleep_s(0.001);
      for (int i = 0; i < 2; ++i) {
        streams[i].replay(graphs[i]);
        streams[i].synchronize();
      }
    }
    for (HostStream& stream : streams) stream.synchronize();
    const Status status = comm.check(&streams[0]);
    if (status != Status::kInvalidArgument) return ok_or_text(comm, status) + " instead of an overlap";
    const std::string text = comm.last_error();
    if (text.find("on rank 0 two launched calls") == std::string::npos) return text;
    // Rank 0 tells of the overlap when its first call has ended. On rank 1 that may come before the last look at lines
    // that are there: then its call has failed, too.
    const bool failed = comm.rank() == 1 && all_ones(out[0]);
    if (std::string wrong = expect_sum(out[0], 1, 2); !wrong.empty() && !failed) {
      return "the call that ran first: " + wrong;
    }
    if (!all_ones(out[1])) return "the call that was refused left something like a result";
    return "";
  }));
}

TEST(Launched, AnOverlapOfALongCallIsToldToWhoeverChecksTheOtherStream) {
  // The long call takes many time-outs, each of its waits less than one.
  Config config = cpu_config();
  config.timeout_s = 0.05 * patience();
  expect_empty(run_ranks(2, config, [](Communicator& comm) -> std::string {
    Values big_in(4'000'000, comm.rank() + 1);
    Values big_out(big_in.size());
    Values in(40, comm.rank() + 1);
    Values out(40);
    HostStream streams[2];  // they end before the buffers that they still work on
    HostGraph graphs[2];
    for (int i = 0; i < 2; ++i) {
      streams[i].begin_capture();
      const Status status = i == 0 ? sum_on(comm, streams[0], big_in, big_out) : sum_on(comm, streams[1], in, out);
      if (status != Status::kOk) return comm.last_error();
      graphs[i] = streams[i].end_capture();
    }
    streams[0].replay(graphs[0]);
    sleep_s(0.002);
    streams[1].replay(graphs[1]);
    const Status status = comm.check(&streams[1]);
    // Where it came when the long one had ended already it has run; the other rank may have seen an overlap all the
    // same.
    if (expect_sum(out, 1, 2).empty()) return "";
    if (status == Status::kOk) return "said to be well, and wrong";
    return all_ones(out) ? "" : "an error, and something like a result";
  }));
}

TEST(Launched, GraphsReplayedInDifferentOrdersGiveMismatchNamingBothCalls) {
  const auto texts = run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    HostStream stream;
    Values in(12, 1);
    Values out[2] = {Values(12), Values(12)};
    HostGraph graphs[2];
    for (int i = 0; i < 2; ++i) {
      stream.begin_capture();
      if (std::string text = ok_or_text(comm, sum_on(comm, stream, in, out[i])); !text.empty()) return text;
      graphs[i] = stream.end_capture();
    }
    stream.replay(graphs[comm.rank()]);
    stream.replay(graphs[1 - comm.rank()]);
    const Status status = comm.check(&stream);
    if (status != Status::kMismatch) return "not a mismatch: " + ok_or_text(comm, status);
    if (!all_ones(out[0]) || !all_ones(out[1])) return "a result of calls that did not match";
    const std::string text = comm.last_error();
    const bool both =
        text.find("launched call 0") != std::string::npos && text.find("launched call 1") != std::string::npos;
    return both ? "" : text;
  });
  expect_empty(texts);
}

/// Two ranks, one call each, that differ in their tags.
void expect_tags_are_compared(std::size_t count) {
  expect_empty(run_ranks(2, cpu_config(), [count](Communicator& comm) -> std::string {
    HostStream stream;
    Values in(count, 1);
    Values out(count);
    if (sum_on(comm, stream, in, out, comm.rank() == 0 ? 10 : 20) != Status::kOk) return comm.last_error();
    const Status status = comm.check(&stream);
    if (status != Status::kMismatch) return "not a mismatch: " + ok_or_text(comm, status);
    return all_ones(out) ? "" : "a result of calls that did not match";
  }));
}

TEST(Launched, TaggedCallsOfEqualShapeInDifferentOrdersAreFound) { expect_tags_are_compared(12); }

// One chunk: a rank sends it before its steps are laid out, and is done when it has come back.
TEST(Launched, CallsOfOneElementThatDifferAreFoundOnBothRanks) {
  for (int round = 0; round < 30 && !HasFailure(); ++round) expect_tags_are_compared(1);
}

TEST(Launched, AnAbortEndsAWaitingCallFillsItsOutputAndEndsHostIssuedCallsToo) {
  expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
    if (comm.rank() == 1) {
      sleep_s(0.1);
      comm.abort();
      HostStream stream;
      Values values(4);
      if (sum_on(comm, stream, values, values) != Status::kAborted) return "a call after abort was taken";
      return "";
    }
    HostStream stream;
    std::vector<float> in(100, 1.0f);
    std::vector<float> out(100);
    if (comm.all_reduce_on(&stream, in.data(), out.data(), in.size(), DType::kFloat32) != Status::kOk)
      return comm.last_error();
    const Stopwatch watch;
    const Status status = comm.check(&stream);
    if (status != Status::kAborted) return "not aborted: " + ok_or_text(comm, status);
    if (watch.seconds() > 2 * patience()) return "took " + std::to_string(watch.seconds()) + " s";
    for (const float value : out) {
      if (value == value) return "a number is left in the output: " + std::to_string(value);
    }
    float host = 0;
    if (comm.wait(comm.all_reduce(&host, &host, 1, DType::kFloat32)) == Status::kOk) return "host-issued calls go on";
    return "";
  }));
}

TEST(Launched, ACallWhosePeersNeverComeTimesOutAndNamesThem) {
  Config config = cpu_config();
  config.timeout_s = 0.3 * patience();
  expect_empty(run_ranks(2, config, [](Communicator& comm) -> std::string {
    if (comm.rank() == 1) {
      sleep_s(1.5 * patience());
      return "";
    }
    HostStream stream;
    Values in(3, 1);
    Values out(3);
    if (sum_on(comm, stream, in, out) != Status::kOk) return comm.last_error();
    const Status status = comm.check(&stream);
    if (status != Status::kTimeout) return "not a time-out: " + ok_or_text(comm, status);
    if (!all_ones(out)) return "the output was left";
    return comm.last_error().find("launched call 0") != std::string::npos &&
                   comm.last_error().find("rank 1") != std::string::npos
               ? ""
               : comm.last_error();
  }));
}

TEST(Launched, AReplayAfterTheCommunicatorHasGoneFillsItsOutputAndWritesNothingElse) {
  HostGraph graphs[2];
  Values in[2] = {Values(20, 1), Values(20, 2)};
  Values out[2] = {Values(20), Values(20)};
  expect_empty(run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    HostStream stream;
    const auto rank = static_cast<std::size_t>(comm.rank());
    stream.begin_capture();
    if (sum_on(comm, stream, in[rank], out[rank]) != Status::kOk) return comm.last_error();
    graphs[rank] = stream.end_capture();
    stream.replay(graphs[rank]);
    if (comm.check(&stream) != Status::kOk) return comm.last_error();
    return expect_sum(out[rank], 1, 2);
  }));
  HostStream stream;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    stream.replay(graphs[rank]);
    stream.synchronize();
    EXPECT_TRUE(all_ones(out[rank]));
  }
}

TEST(Launched, CallsThatAreStillOnASlowStreamRunWhenTheCommunicatorGoes) {
  HostStream streams[2];
  Values out[2] = {Values(50), Values(50)};
  expect_empty(run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    const auto rank = static_cast<std::size_t>(comm.rank());
    streams[rank].launch([] { sleep_s(0.2); });
    fill(out[rank], comm.rank() + 1);
    return ok_or_text(comm, sum_on(comm, streams[rank], out[rank], out[rank]));
  }));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    streams[rank].synchronize();
    EXPECT_EQ(expect_sum(out[rank], 1, 2), "") << "rank " << rank;
  }
}

TEST(Launched, EveryThreadThatChecksAfterAFailureIsToldOfIt) {
  constexpr int kThreads = 4;
  const int rounds = is_sanitized() ? 30 : 200;
  for (int round = 0; round < rounds; ++round) {
    expect_empty(run_ranks(2, cpu_config(), [](Communicator& comm) -> std::string {
      HostStream stream;
      Values values(4, 1);
      if (sum_on(comm, stream, values, values, comm.rank() == 0 ? 10 : 20) != Status::kOk) return comm.last_error();
      stream.synchronize();
      std::atomic<int> ready{0};
      for (const Status status : run_threads(kThreads, [&](int) -> Status {
             HostStream idle;
             ++ready;
             while (ready < kThreads) std::this_thread::yield();
             return comm.check(&idle);
           })) {
        if (status != Status::kMismatch) {
          return std::string("a thread was told ") + status_name(status) + ": " + comm.last_error();
        }
      }
      return "";
    }));
    if (HasFailure()) return;
  }
}

TEST(Launched, ACheckThatOnlyLooksFindsAnIdleStreamDoneAndABusyOneNot) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  HostStream stream;
  for (int i = 0; i < 100; ++i) {
    stream.synchronize();
    ASSERT_EQ(comm.check(&stream, 0), Status::kOk);
  }
  std::atomic<bool> leave{false};
  stream.launch([&leave] {
    while (!leave) sleep_s(0.001);
  });
  EXPECT_EQ(comm.check(&stream, 0), Status::kAgain);
  leave = true;
}

TEST(Launched, BadStreamsAndOptionsAreNamed) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  std::int64_t value = 5;
  EXPECT_EQ(comm.all_reduce_on(nullptr, &value, &value, 1, DType::kInt64), Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("HostStream"), std::string::npos) << comm.last_error();
  EXPECT_EQ(comm.check(nullptr), Status::kInvalidArgument);
  HostStream stream;
  CallOptions options;
  options.after = Stream{&stream};
  EXPECT_EQ(comm.all_reduce_on(&stream, &value, &value, 1, DType::kInt64, ReduceOp::kSum, options),
            Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("after"), std::string::npos) << comm.last_error();
  EXPECT_EQ(comm.all_reduce_on(&stream, nullptr, &value, 1, DType::kInt64), Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("in"), std::string::npos) << comm.last_error();
  stream.begin_capture();
  EXPECT_EQ(comm.check(&stream), Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("capture"), std::string::npos) << comm.last_error();
  EXPECT_EQ(comm.all_reduce(&value, &value, 1, DType::kInt64, ReduceOp::kSum, options).status,
            Status::kInvalidArgument);
  EXPECT_NE(comm.last_error().find("all_reduce_on"), std::string::npos) << comm.last_error();
  (void)stream.end_capture();
  EXPECT_EQ(comm.all_reduce_on(&stream, &value, &value, 1, DType::kInt64), Status::kOk) << comm.last_error();
  EXPECT_EQ(comm.check(&stream), Status::kOk);
  EXPECT_EQ(comm.stats().stream_calls, 1u);
}

}  // namespace
}  // namespace ringbell::test
