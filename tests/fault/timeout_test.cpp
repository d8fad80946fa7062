// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A peer that does not come, comes late, aborts or leaves: an error in bounded time that names it; never a hang.
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr Protocol kAll[] = {Protocol::kLL, Protocol::kLL128, Protocol::kSimple};

Config with_timeout(double seconds) {
  Config config = cpu_config();
  config.timeout_s = seconds;
  return config;
}

Ticket ones(Communicator& comm, std::int64_t* value, Protocol protocol = Protocol::kAuto,
            Algorithm algorithm = Algorithm::kRing) {
  CallOptions options;
  options.protocol = protocol;
  options.algorithm = algorithm;
  return comm.all_reduce(value, value, 1, DType::kInt64, ReduceOp::kSum, options);
}

struct Outcome {
  Status status = Status::kOk;
  double seconds = 0;
  std::string text;
};

TEST(CaseC13, AnOperationTimeOutOfHalfASecondFiresNamesTheAbsentRankAndTheLateOneLearnsAtOnce) {
  for (Protocol protocol : kAll) {
    for (int world : {2, 3}) {
      SCOPED_TRACE(std::string(protocol_name(protocol)) + " world " + std::to_string(world));
      const int late = world - 1;
      SharedWords timed_out(1);
      const auto outcomes = run_ranks(world, with_timeout(0.5), [&](Communicator& comm) {
        std::int64_t values[2] = {1, 1};
        EXPECT_EQ(wait_ok(comm, ones(comm, &values[0], protocol)), "");
        if (comm.rank() == late) {
          EXPECT_TRUE(timed_out.await(0, static_cast<std::uint64_t>(late)));
        }
        Outcome outcome;
        const Stopwatch watch;
        outcome.status = comm.wait(ones(comm, &values[1], protocol));
        outcome.seconds = watch.seconds();
        outcome.text = comm.last_error();
        ++timed_out[0];
        const Stopwatch after;
        EXPECT_NE(comm.wait(ones(comm, &values[1], protocol)), Status::kOk);
        EXPECT_LT(after.seconds(), 0.3 * patience()) << "a broken communicator answers at once";
        return outcome;
      });
      for (int rank = 0; rank < world; ++rank) {
        const Outcome& o = outcomes[static_cast<std::size_t>(rank)];
        EXPECT_EQ(o.status, Status::kTimeout) << "rank " << rank << ": " << status_name(o.status) << " " << o.text;
        EXPECT_NE(o.text.find("call 1"), std::string::npos) << o.text;
        EXPECT_NE(o.text.find("waited in vain for the"), std::string::npos) << o.text;
        EXPECT_NE(o.text.find("of rank"), std::string::npos) << o.text;
        if (rank == late) {
          EXPECT_NE(o.text.find("part of rank " + std::to_string(late) + " (this one)"), std::string::npos) << o.text;
          EXPECT_LT(o.seconds, 0.3 * patience()) << "the late rank finds the group broken and returns at once";
        } else {
          EXPECT_GE(o.seconds, 0.45);
          EXPECT_LT(o.seconds, 1.5 * patience());
        }
      }
      const std::string& text = outcomes[0].text;
      EXPECT_NE(text.find("of rank " + std::to_string(late)), std::string::npos) << text;
      EXPECT_NE(text.find("is rank " + std::to_string(late) + " making the same calls?"), std::string::npos) << text;
    }
  }
}

// In one-shot all that the late rank needs is there already: its call is right, or it learns; the next one fails at
// once.
TEST(CaseC13, InOneShotTheAbsentRankIsNamedAndTheLateOneIsRightOrLearnsAtOnce) {
  for (Protocol protocol : kAll) {
    for (int world : {2, 3}) {
      SCOPED_TRACE(std::string(protocol_name(protocol)) + " world " + std::to_string(world));
      const int late = world - 1;
      SharedWords timed_out(1);
      run_ranks(world, with_timeout(0.5), [&](Communicator& comm) {
        std::int64_t values[2] = {1, 1};
        EXPECT_EQ(wait_ok(comm, ones(comm, &values[0], protocol, Algorithm::kOneShot)), "");
        const bool is_late = comm.rank() == late;
        if (is_late) {
          EXPECT_TRUE(timed_out.await(0, static_cast<std::uint64_t>(late)));
        }
        const Stopwatch watch;
        const Status status = comm.wait(ones(comm, &values[1], protocol, Algorithm::kOneShot));
        const std::string text = comm.last_error();
        ++timed_out[0];
        if (is_late) {
          EXPECT_LT(watch.seconds(), 0.3 * patience());
          EXPECT_TRUE(status == Status::kTimeout || (status == Status::kOk && values[1] == comm.world())) << text;
        } else {
          EXPECT_EQ(status, Status::kTimeout) << text;
          EXPECT_GE(watch.seconds(), 0.45);
          EXPECT_NE(text.find("of rank " + std::to_string(late)), std::string::npos) << text;
        }
        const Stopwatch after;
        EXPECT_NE(comm.wait(ones(comm, &values[1], protocol, Algorithm::kOneShot)), Status::kOk);
        EXPECT_LT(after.seconds(), 0.3 * patience());
        return 0;
      });
    }
  }
}

TEST(CaseC13, InALongerRingTheAbsentRankIsNamedAndNotTheNeighbour) {
  // Rank 1 is absent. By the ring rank 0 waits for rank 2, which is there and waits itself.
  const auto outcomes = run_ranks(3, with_timeout(0.3), [&](Communicator& comm) {
    std::int64_t value = 1;
    Outcome outcome;
    if (comm.rank() == 1) {
      sleep_s(0.8 * patience());
      return outcome;
    }
    outcome.status = comm.wait(ones(comm, &value));
    outcome.text = comm.last_error();
    return outcome;
  });
  for (int rank : {0, 2}) {
    const Outcome& o = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(o.status, Status::kTimeout);
    EXPECT_NE(o.text.find("of rank 1"), std::string::npos) << o.text;
    EXPECT_NE(o.text.find("is rank 1 making the same calls?"), std::string::npos) << o.text;
  }
}

TEST(CaseC13, ALateRankInsideTheTimeOutIsWaitedFor) {
  const auto outcomes = run_ranks(2, with_timeout(10 * patience()), [](Communicator& comm) {
    std::int64_t value = 1;
    if (comm.rank() == 1) sleep_s(0.7);
    return wait_ok(comm, ones(comm, &value));
  });
  for (const std::string& text : outcomes) EXPECT_EQ(text, "");
}

TEST(CaseC13, ZeroWaitsForEver) {
  const auto outcomes = run_ranks(2, with_timeout(0), [](Communicator& comm) {
    std::int64_t value = 1;
    if (comm.rank() == 1) sleep_s(0.6);
    const Ticket ticket = ones(comm, &value);
    if (comm.rank() == 0) {
      EXPECT_EQ(comm.wait(ticket, 0.2), Status::kAgain);
    }
    return wait_ok(comm, ticket);
  });
  for (const std::string& text : outcomes) EXPECT_EQ(text, "");
}

TEST(CaseC13, SetUpHasItsOwnTimeOutAndListsTheAbsentRanks) {
  Config config = cpu_config();
  config.init_timeout_s = 0.5;
  config.timeout_s = 0;
  const UniqueId id = unique_id_create();
  const Stopwatch watch;
  try {
    const Communicator comm(id, 0, 3, config);
    FAIL() << "two ranks are absent";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kTimeout) << error.what();
    const std::string text = error.what();
    EXPECT_NE(text.find("1"), std::string::npos) << text;
    EXPECT_NE(text.find("2"), std::string::npos) << text;
    EXPECT_NE(text.find("rank"), std::string::npos) << text;
  }
  EXPECT_GE(watch.seconds(), 0.45);
  EXPECT_LT(watch.seconds(), 2 * patience());
  EXPECT_FALSE(segment_is_named(id));
}

TEST(CaseC13, ARankThatStartsLateInsideTheSetUpTimeOutJoins) {
  const UniqueId id = unique_id_create();
  const auto outcomes = run_threads(2, [&](int rank) {
    if (rank == 1) sleep_s(0.7);
    Communicator comm(id, rank, 2, cpu_config());
    std::int64_t value = 1;
    return wait_ok(comm, ones(comm, &value));
  });
  for (const std::string& text : outcomes) EXPECT_EQ(text, "");
}

// ---- abort ----------------------------------------------------------------------------------------------------------

TEST(Abort, FromAnotherThreadEndsTheWaitOnAllRanks) {
  for (Protocol protocol : kAll) {
    const auto outcomes = run_ranks(3, cpu_config(), [&](Communicator& comm) {
      std::int64_t values[2] = {1, 1};
      EXPECT_EQ(wait_ok(comm, ones(comm, &values[0], protocol)), "");
      Outcome outcome;
      if (comm.rank() == 2) {  // never makes the call; aborts from here, as any thread may
        sleep_s(0.1);
        comm.abort();
        const Stopwatch watch;
        outcome.status = comm.wait(ones(comm, &values[1], protocol));
        outcome.seconds = watch.seconds();
        outcome.text = comm.last_error();
        sleep_s(0.5 * patience());  // still a member while the others learn of it
        return outcome;
      }
      const Stopwatch watch;
      outcome.status = comm.wait(ones(comm, &values[1], protocol));
      outcome.seconds = watch.seconds();
      outcome.text = comm.last_error();
      return outcome;
    });
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(o.status, Status::kAborted) << status_name(o.status) << " " << o.text;
      EXPECT_LT(o.seconds, 1 * patience());
      EXPECT_NE(o.text.find("rank 2 aborted"), std::string::npos) << o.text;
    }
  }
}

TEST(Abort, EndsTheOwnWaitThatAnotherThreadIsIn) {
  const auto outcomes = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::int64_t value = 1;
    Outcome outcome;
    if (comm.rank() == 1) {
      sleep_s(0.6 * patience());
      outcome.status = comm.wait(ones(comm, &value));
      outcome.text = comm.last_error();
      return outcome;
    }
    std::thread aborter([&] {
      sleep_s(0.1);
      comm.abort();
    });
    const Stopwatch watch;
    outcome.status = comm.wait(ones(comm, &value));
    outcome.seconds = watch.seconds();
    outcome.text = comm.last_error();
    value = 77;  // ours again: the worker has let go of it
    sleep_s(0.7 * patience());
    EXPECT_EQ(value, 77);
    aborter.join();
    return outcome;
  });
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.status, Status::kAborted) << status_name(o.status) << " " << o.text;
    EXPECT_LT(o.seconds, 1 * patience());
    EXPECT_NE(o.text.find("rank 0 aborted"), std::string::npos) << o.text;
  }
}

TEST(Abort, InsideAParkedScopeEndsQueuedCallsHereAndThenOnThePeers) {
  const auto outcomes = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::int64_t value = 1;
    Outcome outcome;
    if (comm.rank() == 1) {
      outcome.status = comm.wait(ones(comm, &value));
      outcome.text = comm.last_error();
      return outcome;
    }
    {
      const ParkedScope scope(comm);
      const Ticket ticket = ones(comm, &value);
      comm.abort();
      const Stopwatch watch;
      outcome.status = comm.wait(ticket);
      EXPECT_LT(watch.seconds(), 0.5 * patience());
      EXPECT_EQ(value, 1);
    }
    outcome.text = comm.last_error();
    sleep_s(0.5 * patience());  // still a member while the other learns of it
    return outcome;
  });
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.status, Status::kAborted) << status_name(o.status) << " " << o.text;
    EXPECT_NE(o.text.find("rank 0 aborted"), std::string::npos) << o.text;
  }
}

TEST(Abort, TwiceAndOnAnIdleCommunicatorIsHarmless) {
  run_ranks(2, cpu_config(), [](Communicator& comm) {
    comm.abort();
    comm.abort();
    std::int64_t value = 1;
    EXPECT_EQ(ones(comm, &value).status, Status::kAborted);
    EXPECT_EQ(comm.hold(), Status::kAborted);
    EXPECT_EQ(comm.nop().status, Status::kAborted);
    EXPECT_NE(comm.last_error().find("aborted"), std::string::npos);
    return 0;
  });
}

// ---- leaving --------------------------------------------------------------------------------------------------------

TEST(Leaving, APeerThatLeftIsSaidToHaveLeft) {
  const auto outcomes = run_ranks(3, cpu_config(), [](Communicator& comm) {
    std::int64_t values[2] = {1, 1};
    EXPECT_EQ(wait_ok(comm, ones(comm, &values[0])), "");
    Outcome outcome;
    if (comm.rank() == 1) return outcome;  // leaves by its destructor
    const Stopwatch watch;
    outcome.status = comm.wait(ones(comm, &values[1]));
    outcome.seconds = watch.seconds();
    outcome.text = comm.last_error();
    return outcome;
  });
  for (int rank : {0, 2}) {
    const Outcome& o = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(o.status, Status::kPeerLost) << status_name(o.status) << " " << o.text;
    EXPECT_LT(o.seconds, 1 * patience());
    EXPECT_NE(o.text.find("rank 1"), std::string::npos) << o.text;
  }
  EXPECT_NE((outcomes[0].text + outcomes[2].text).find("has left the group"), std::string::npos)
      << outcomes[0].text << "\n"
      << outcomes[2].text;
}

TEST(CaseC21, APeerThatFinishedItsPartAndLeftDoesNotBreakTheLastCall) {
  for (int round = 0; round < 20; ++round) {
    const auto texts = run_ranks(3, cpu_config(), [&](Communicator& comm) -> std::string {
      std::vector<std::int64_t> values(20000, 1);
      CallOptions options;
      options.protocol = kAll[round % 3];
      const Ticket ticket =
          comm.all_reduce(values.data(), values.data(), values.size(), DType::kInt64, ReduceOp::kSum, options);
      // The others come back to their wait when rank 0 has left.
      if (comm.rank() != 0 && round % 5 == 0) sleep_s(0.4);
      if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
      for (std::int64_t value : values) {
        if (value != 3) return "wrong";
      }
      return "";
    });
    for (const std::string& text : texts) ASSERT_EQ(text, "") << round;
  }
}

TEST(CaseC12, DestroyWithCallsQueuedThatNobodyAnswersIsBoundedAndTheOthersLearnOfIt) {
  const auto seconds = run_ranks(2, cpu_config(), [](Communicator& comm) {
    static std::int64_t values[10];  // outlives the calls
    if (comm.rank() == 1) {
      sleep_s(0.3);
      std::int64_t value = 1;
      // Either rank 0 still waits for us and we join its first call, or it has gone.
      (void)comm.wait(ones(comm, &value));
      return 0.0;
    }
    for (std::int64_t& value : values) EXPECT_EQ(ones(comm, &value).status, Status::kOk);
    const Stopwatch watch;
    { const Communicator gone = std::move(comm); }
    return watch.seconds();
  });
  EXPECT_LT(seconds[0], 8 * patience());
}

TEST(CaseC12, UnevenTeardownIsLocalAndBounded) {
  const auto seconds = run_ranks(2, cpu_config(), [](Communicator& comm) {
    std::int64_t value = 1;
    EXPECT_EQ(wait_ok(comm, ones(comm, &value)), "");
    if (comm.rank() == 1) sleep_s(1);
    const Stopwatch watch;
    { const Communicator gone = std::move(comm); }
    return watch.seconds();
  });
  EXPECT_LT(seconds[0], 0.5 * patience()) << "rank 0 does not wait for a rank that sleeps";
  EXPECT_LT(seconds[1], 0.5 * patience());
}

}  // namespace
}  // namespace ringbell::test
