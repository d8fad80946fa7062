// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes: the same results as threads, and what happens when one is killed, stopped, forked or leaves.
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/buffers.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

void expect_success(const std::vector<ProcessResult>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].code, 0) << "rank " << rank << " signal " << results[rank].signal << ": "
                                     << results[rank].text;
  }
}

std::string sum_of_ones(Communicator& comm, Protocol protocol = Protocol::kAuto, std::uint64_t count = 1) {
  std::vector<std::int64_t> values(count, 1);
  CallOptions options;
  options.protocol = protocol;
  const Ticket ticket = comm.all_reduce(values.data(), values.data(), count, DType::kInt64, ReduceOp::kSum, options);
  if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
  for (std::int64_t value : values) {
    if (value != comm.world()) return "wrong sum";
  }
  return "";
}

// What a survivor must see: kPeerLost in time, `lost` and `words` in the text, and an error at once from then on.
std::string expect_lost(Communicator& comm, Status status, double seconds, int lost, const std::string& words = "") {
  const std::string text = comm.last_error();
  if (status != Status::kPeerLost) return std::string("not kPeerLost but ") + status_name(status) + ": " + text;
  if (text.find("rank " + std::to_string(lost)) == std::string::npos) return "the lost rank is not named: " + text;
  if (text.find(words) == std::string::npos) return "no '" + words + "' in: " + text;
  if (seconds > 1.0 * patience()) return "took " + std::to_string(seconds) + " s";
  const Stopwatch watch;
  std::int64_t value = 1;
  if (comm.wait(comm.all_reduce(&value, &value, 1, DType::kInt64)) == Status::kOk) return "works after a loss";
  if (watch.seconds() > 0.3 * patience()) return "a later call does not answer at once";
  return "";
}

TEST(Processes, GiveTheSameBitsAsThreadsOnEveryProtocol) {
  for (int world : {2, 3, 8}) {
    std::vector<AllReduceCase> cases;
    std::size_t turn = 0;
    for (const AllReduceCase& row : pairwise_rows()) {
      if (turn++ % 3 != 0) continue;
      cases.push_back(row);
      cases.back().protocol = kProtocols[turn % 3];
      cases.back().count = turn * 37 % 2100;
    }
    Config config = cpu_config();
    config.slot_bytes = 1920;
    const UniqueId id = unique_id_create();
    SharedWords hashes(cases.size());
    RankProcesses ranks(world, [&](int rank) -> std::string {
      Communicator comm(id, rank, world, config);
      if (segment_is_named(id)) return "the segment still has its name";
      HostBuffer in;
      HostBuffer out;
      const SuiteResult result = run_cases(comm, cases, 77, plan_basis(world, DeviceKind::kCpu, 1920), in, out);
      for (std::size_t i = 0; i < result.hashes.size(); ++i) {
        std::uint64_t other = 0;
        if (!hashes[i].compare_exchange_strong(other, result.hashes[i]) && other != result.hashes[i]) {
          return case_text(cases[i]) + ": other bits than another rank";
        }
      }
      return result.failure;
    });
    expect_success(ranks.wait_all());
    const auto threads = run_on_threads(world, config, cases, 77);
    ASSERT_EQ(threads[0].hashes.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i)
      EXPECT_EQ(threads[0].hashes[i], hashes[i].load()) << case_text(cases[i]);
  }
}

TEST(CaseC11, AProcessKilledInsideACallIsNamedByEverySurvivorWithinASecond) {
  for (Protocol protocol : kProtocols) {
    SCOPED_TRACE(protocol_name(protocol));
    constexpr int kWorld = 4;
    constexpr int kVictim = 2;
    const UniqueId id = unique_id_create();
    SharedWords words(2);
    RankProcesses ranks(kWorld, [&](int rank) -> std::string {
      Communicator comm(id, rank, kWorld, cpu_config());
      if (std::string text = sum_of_ones(comm, protocol, 100000); !text.empty()) return text;
      CallOptions options;
      options.protocol = protocol;
      std::vector<std::int64_t> values(1000, 1);
      if (rank == kVictim) {
        ++words[0];
        pause();
        return "survived";
      }
      const Ticket ticket =
          comm.all_reduce(values.data(), values.data(), values.size(), DType::kInt64, ReduceOp::kSum, options);
      if (comm.wait(ticket, 0.1) != Status::kAgain) return "did not wait for the victim";
      ++words[0];
      if (!words.await(1, 1)) return "not told";
      const Stopwatch watch;
      const Status status = comm.wait(ticket);
      return expect_lost(comm, status, watch.seconds(), kVictim, "is gone");
    });
    ASSERT_TRUE(words.await(0, kWorld));  // all wait in the call
    ranks.signal(kVictim, SIGKILL);
    words[1] = 1;
    auto results = ranks.wait_all();
    EXPECT_EQ(results[kVictim].signal, SIGKILL);
    results[kVictim] = {0, 0, ""};
    expect_success(results);
    EXPECT_FALSE(segment_is_named(id));
  }
}

// At any instant: mid chunk, between calls, right after its own part.
TEST(CaseC11, AProcessKilledAtAnyInstantNeverLeavesAHangOrAWrongResult) {
  std::uint64_t random = 4711;
  for (int round = 0; round < 12; ++round) {
    const int world = 2 + round % 3;
    const UniqueId id = unique_id_create();
    SharedWords running(1);
    RankProcesses ranks(world, [&](int rank) -> std::string {
      Communicator comm(id, rank, world, cpu_config());
      const Stopwatch watch;
      for (std::uint64_t call = 0;; ++call) {
        if (call == 3) ++running[0];
        std::vector<std::int64_t> values(1 + call % 7 * 9000, static_cast<std::int64_t>(call) + rank);
        CallOptions options;
        options.protocol = kProtocols[call % 3];
        const Stopwatch one;
        const Status status = comm.wait(
            comm.all_reduce(values.data(), values.data(), values.size(), DType::kInt64, ReduceOp::kSum, options));
        if (status == Status::kPeerLost) return one.seconds() < 1.5 * patience() ? "" : "took too long";
        if (status != Status::kOk) return status_name(status) + (": " + comm.last_error());
        const std::int64_t expected = static_cast<std::int64_t>(call) * world + world * (world - 1) / 2;
        for (std::int64_t value : values) {
          if (value != expected) return "wrong result taken for success";
        }
        if (watch.seconds() > 30 * patience()) return "never noticed";
      }
    });
    ASSERT_TRUE(running.await(0, static_cast<std::uint64_t>(world)));
    random = random * 6364136223846793005u + 1442695040888963407u;
    sleep_s(static_cast<double>((random >> 33) % 20) * 1e-3);
    const int victim = round % world;
    ranks.signal(victim, SIGKILL);
    auto results = ranks.wait_all();
    EXPECT_EQ(results[static_cast<std::size_t>(victim)].signal, SIGKILL);
    results[static_cast<std::size_t>(victim)] = {0, 0, ""};
    expect_success(results);
    EXPECT_FALSE(segment_is_named(id));
  }
}

TEST(CaseC11, AStoppedProcessIsWaitedForAndNotDeclaredDead) {
  constexpr int kWorld = 3;
  const UniqueId id = unique_id_create();
  SharedWords words(2);
  Config config = cpu_config();
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    Communicator comm(id, rank, kWorld, config);
    if (std::string text = sum_of_ones(comm); !text.empty()) return text;
    ++words[0];
    if (!words.await(1, 1)) return "not told";
    const Stopwatch watch;
    if (std::string text = sum_of_ones(comm, Protocol::kSimple, 5000); !text.empty()) return text;
    if (rank == 0 && watch.seconds() < 0.5) return "nobody was stopped";
    return sum_of_ones(comm);
  });
  ASSERT_TRUE(words.await(0, kWorld));
  ranks.signal(1, SIGSTOP);
  sleep_s(0.05);
  words[1] = 1;
  sleep_s(1);
  ranks.signal(1, SIGCONT);
  expect_success(ranks.wait_all());
}

TEST(CaseC12, AProcessThatLeftIsSaidToHaveLeftAndOneThatExitsWithoutDestructorIsGone) {
  for (bool destroys : {true, false}) {
    const UniqueId id = unique_id_create();
    RankProcesses ranks(3, [&](int rank) -> std::string {
      auto* comm = new Communicator(id, rank, 3, cpu_config());
      if (std::string text = sum_of_ones(*comm); !text.empty()) return text;
      if (rank == 1) {
        if (destroys) delete comm;
        return "";  // by _exit
      }
      std::int64_t value = 1;
      const Ticket ticket = comm->all_reduce(&value, &value, 1, DType::kInt64);
      const Stopwatch watch;
      const Status status = comm->wait(ticket);
      std::string text = expect_lost(*comm, status, watch.seconds(), 1);
      delete comm;
      return text;
    });
    expect_success(ranks.wait_all());
    EXPECT_FALSE(segment_is_named(id));
  }
}

TEST(CaseC11, AProcessThatDiesDuringSetUpIsNamed) {
  const UniqueId id = unique_id_create();
  const Stopwatch watch;
  RankProcesses ranks(3, [&](int rank) -> std::string {
    if (rank == 1) {
      // Claims its rank as a real one would, then dies in the fence: its third peer comes later.
      std::thread killer([] {
        sleep_s(0.3 * patience());
        kill(getpid(), SIGKILL);
      });
      killer.detach();
    }
    if (rank == 2) sleep_s(0.8 * patience());
    Config config = cpu_config();
    config.init_timeout_s = 4 * patience();
    try {
      Communicator comm(id, rank, 3, config);
    } catch (const Error& error) {
      return error.status() == Status::kPeerLost && std::string(error.what()).find("rank 1") != std::string::npos
                 ? ""
                 : std::string(status_name(error.status())) + ": " + error.what();
    }
    return "joined a group without rank 1";
  });
  auto results = ranks.wait_all();
  EXPECT_EQ(results[1].signal, SIGKILL) << results[1].text;
  results[1] = {0, 0, ""};
  // Rank 2 may come when the segment is gone already; then it is told that nobody is there.
  EXPECT_EQ(results[0].code, 0) << results[0].text;
  EXPECT_NE(results[2].code, -1);
  EXPECT_FALSE(segment_is_named(id));
}

TEST(Fork, AChildIsRefusedAndItsExitHarmsNothing) {
  const UniqueId id = unique_id_create();
  RankProcesses ranks(2, [&](int rank) -> std::string {
    Communicator comm(id, rank, 2, cpu_config());
    for (int round = 0; round < 3; ++round) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      const pid_t child = fork();
      if (child == 0) {
        float value = 1;
        const Ticket ticket = comm.all_reduce(&value, &value, 1, DType::kFloat32);
        bool good = ticket.status == Status::kUnsupported && comm.wait(ticket) == Status::kUnsupported &&
                    comm.test(ticket) == Status::kUnsupported && comm.hold() == Status::kUnsupported &&
                    comm.release() == Status::kUnsupported && comm.park(0.1) == Status::kUnsupported &&
                    comm.park_and_stay(0.1) == Status::kUnsupported && comm.nop().status == Status::kUnsupported &&
                    comm.last_error().find("fork") != std::string::npos && comm.stats().calls == 0;
        comm.abort();
        comm.unpark();
        if (round == 1) {
          const Communicator gone = std::move(comm);  // the destructor runs
        }
        _exit(good ? 0 : 1);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return "the child was not refused";
    }
    // Long enough for a wrong verdict of the peers' watch.
    for (int call = 0; call < 30; ++call) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
      sleep_s(0.02);
    }
    return "";
  });
  expect_success(ranks.wait_all());
}

TEST(CaseC23, TwoHundredRoundsOfCreateAndDestroyLeaveDescriptorsThreadsAndMapsFlat) {
  RankProcesses ranks(1, [&](int) -> std::string {
    const auto round = [] {
      const auto texts = run_ranks(2, cpu_config(), [](Communicator& comm) { return sum_of_ones(comm); });
      return texts[0] + texts[1];
    };
    for (int i = 0; i < 5; ++i) {
      if (std::string text = round(); !text.empty()) return text;
    }
    const std::size_t fds = open_fds();
    const std::size_t threads = thread_count();
    const MapCount maps = map_count();
    constexpr std::size_t kRounds = 200;
    for (std::size_t i = 0; i < kRounds; ++i) {
      if (std::string text = round(); !text.empty()) return text;
    }
    if (open_fds() != fds) return std::to_string(fds) + " descriptors became " + std::to_string(open_fds());
    if (thread_count() != threads) return std::to_string(threads) + " threads became " + std::to_string(thread_count());
    const MapCount after = map_count();
    if (after.files != maps.files) {
      return std::to_string(maps.files) + " mapped files became " + std::to_string(after.files);
    }
    // A sanitizer's allocator maps more as it goes. One map left behind by every other round is still found.
    const std::size_t room = is_sanitized() ? kRounds / 2 : 8;
    if (after.anonymous > maps.anonymous + room) {
      return std::to_string(maps.anonymous) + " anonymous maps became " + std::to_string(after.anonymous);
    }
    return "";
  });
  expect_success(ranks.wait_all());
}

TEST(CaseC15, OverlappingGroupsAndManyCommunicatorsInOneProcessDoNotMix) {
  // {0,1,2}, {0,3} and {0,1,2,3}, created in that order and used at once.
  const UniqueId ids[3] = {unique_id_create(), unique_id_create(), unique_id_create()};
  RankProcesses ranks(4, [&](int rank) -> std::string {
    std::vector<Communicator> comms;
    if (rank < 3) comms.emplace_back(ids[0], rank, 3, cpu_config());
    if (rank == 0 || rank == 3) comms.emplace_back(ids[1], rank == 0 ? 0 : 1, 2, cpu_config());
    comms.emplace_back(ids[2], rank, 4, cpu_config());
    for (int call = 0; call < 200; ++call) {
      std::vector<std::int64_t> values(comms.size());
      std::vector<Ticket> tickets;
      for (std::size_t i = 0; i < comms.size(); ++i) {
        values[i] = call * comms[i].world();
        tickets.push_back(comms[i].all_reduce(&values[i], &values[i], 1, DType::kInt64));
      }
      for (std::size_t i = 0; i < comms.size(); ++i) {
        if (std::string text = wait_ok(comms[i], tickets[i]); !text.empty()) return text;
        if (values[i] != std::int64_t{call} * comms[i].world() * comms[i].world()) return "cross-talk";
      }
    }
    return "";
  });
  expect_success(ranks.wait_all());

  RankProcesses many(1, [](int) -> std::string {
    std::vector<Communicator> comms;
    for (int i = 0; i < 64; ++i) comms.emplace_back(unique_id_create(), 0, 1, cpu_config());
    for (Communicator& comm : comms) {
      if (std::string text = sum_of_ones(comm); !text.empty()) return text;
    }
    return "";
  });
  expect_success(many.wait_all());
}

}  // namespace
}  // namespace ringbell::test
