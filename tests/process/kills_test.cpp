// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
// ringbell-test: name=five_hundred label=ci timeout=600 env=RINGBELL_TEST_KILLS=500
//
// Processes killed at seeded instants of set-up, calls and tear-down, sessions with names of their own and with reused
// ones: afterwards `ringbell clean` leaves no object, and jobs beside them never noticed. RINGBELL_TEST_KILLS=N and
// RINGBELL_TEST_SEED=N choose how many and which.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/private_shm.hpp"
#include "tests/support/program.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/set_up_process.hpp"

namespace ringbell::test {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// 0 <= x < 1
  double operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 33) / static_cast<double>(1u << 31);
  }

 private:
  std::uint64_t state_;
};

enum Stage : std::uint64_t { kSetUp, kCalls, kTearDown, kDone, kStageCount };
constexpr const char* kStageNames[] = {"set-up", "calls", "tear-down", "done"};

/// When each rank of a session came to each stage, by the monotonic clock; 0: not yet.
class Stages {
 public:
  explicit Stages(int world) : times_(static_cast<std::size_t>(world) * kStageCount) {}
  void enter(int rank, Stage stage) { at(rank, stage) = host::monotonic_ns(); }
  [[nodiscard]] Stage of(int rank) {
    std::uint64_t stage = kDone;
    while (stage > kSetUp && at(rank, stage) == 0) --stage;
    return static_cast<Stage>(stage);
  }
  [[nodiscard]] double seconds_of(int rank, Stage stage) {
    return static_cast<double>(at(rank, stage + 1) - at(rank, stage)) / 1e9;
  }
  void await(int rank, Stage stage, double seconds) {
    const Stopwatch watch;
    while (at(rank, stage) == 0 && watch.seconds() < seconds) sleep_s(50e-6);
  }

 private:
  std::atomic<std::uint64_t>& at(int rank, std::uint64_t stage) {
    return times_[static_cast<std::size_t>(rank) * kStageCount + stage];
  }
  SharedWords times_;
};

/// One rank's life: set up, call, tear down.
std::string live_once(const UniqueId& id, int rank, int world, Stages& stages) {
  Config config = cpu_config();
  config.init_timeout_s = 0.5 * patience();
  config.timeout_s = 0.5 * patience();
  {
    stages.enter(rank, kSetUp);
    const auto comm = std::make_unique<Communicator>(id, rank, world, config);
    stages.enter(rank, kCalls);
    for (int call = 0; call < 20; ++call) {
      std::int64_t value = call + rank;
      if (std::string text = wait_ok(*comm, comm->all_reduce(&value, &value, 1, DType::kInt64)); !text.empty())
        return text;
      if (value != std::int64_t{call} * world + world * (world - 1) / 2) return "wrong sum";
    }
    stages.enter(rank, kTearDown);
  }
  stages.enter(rank, kDone);
  return "";
}

struct Tally {
  std::uint64_t kills = 0;
  std::uint64_t sessions = 0;
  std::uint64_t in_stage[kStageCount] = {};
};

using StageSeconds = std::array<double, kStageCount>;

/// How long sessions of three stay in each stage.
StageSeconds usual_seconds() {
  StageSeconds seconds{};
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const UniqueId id = unique_id_create();
    Stages stages(3);
    RankProcesses ranks(3, [&](int rank) { return live_once(id, rank, 3, stages); });
    for (const ProcessResult& result : ranks.wait_all()) {
      if (result.code != 0) throw std::runtime_error(result.text);
    }
    for (const Stage stage : {kSetUp, kCalls, kTearDown}) seconds[stage] += stages.seconds_of(0, stage) / kRounds;
  }
  return seconds;
}

/// One session. Its ranks are killed within one stage of a rank: all at one instant, each at its own, or one alone, so
/// that the others end by themselves.
std::string kill_some(Random& random, const StageSeconds& usual, Tally& tally) {
  const int world = 2 + static_cast<int>(random() * 3);
  // Every fourth session takes a name that earlier ones may have left.
  const UniqueId id = tally.sessions % 4 == 0 ? host::unique_id_from_key("kills") : unique_id_create();
  ++tally.sessions;
  const auto stage = static_cast<Stage>(random() * static_cast<double>(kDone));
  const int first = static_cast<int>(random() * world);
  const double span_s = 1.2 * usual[stage];
  const double together = random();
  const double one_instant_s = random() * span_s;
  std::vector<std::pair<double, int>> kills;
  for (int rank = 0; rank < world; ++rank) {
    const double own_instant_s = random() * span_s;
    if (together < 1.0 / 3 && rank != first) continue;
    kills.emplace_back(together < 2.0 / 3 ? one_instant_s : own_instant_s, rank);
  }
  std::sort(kills.begin(), kills.end());

  Stages stages(world);
  RankProcesses ranks(world, [&](int rank) { return live_once(id, rank, world, stages); });
  stages.await(first, stage, 2);
  const Stopwatch watch;
  std::vector<Stage> at(static_cast<std::size_t>(world), kDone);
  for (const auto& [time_s, rank] : kills) {
    if (const double rest_s = time_s - watch.seconds(); rest_s > 0) sleep_s(rest_s);
    at[static_cast<std::size_t>(rank)] = stages.of(rank);
    ranks.signal(rank, SIGKILL);
  }
  for (int rank = 0; rank < world; ++rank) {
    const ProcessResult result = ranks.wait(rank);
    if (result.signal == SIGKILL) {
      ++tally.kills;
      ++tally.in_stage[at[static_cast<std::size_t>(rank)]];
    } else if (result.signal != 0 || result.text.find("wrong sum") != std::string::npos) {
      return "signal " + std::to_string(result.signal) + " " + result.text;
    }
  }
  return "";
}

std::string kill_many(std::uint64_t wanted, std::uint64_t seed) {
  setenv("RINGBELL_LOG_FILE", "/dev/null", 1);  // what survivors say of the dead, hundreds of times
  // Beside them, one session that is up and calls, and one that waits for its second rank all the while.
  const UniqueId waiting = unique_id_create();
  SharedWords words(1);
  RankProcesses running(
      2,
      [&, id = unique_id_create()](int rank) -> std::string {
        Communicator comm(id, rank, 2, cpu_config());
        for (std::int64_t call = 0;; ++call) {
          std::int64_t values[2] = {call, rank == 0 && words[0] != 0 ? 1 : 0};
          if (std::string text = wait_ok(comm, comm.all_reduce(values, values, 2, DType::kInt64)); !text.empty())
            return text;
          if (values[0] != 2 * call) return "wrong sum";
          if (values[1] != 0) return "";
          sleep_s(0.002);
        }
      },
      500);
  // Its limit is its own: the kills take longer than a usual set-up may.
  host::Rank zero([&] {
    const auto deadline = host::Deadline::after_seconds(500);
    host::Segment segment = host::Segment::create_or_open(waiting, 0, 2, host::kGeometry, deadline);
    host::Liveness liveness(segment);
    host::Fence fence(segment, liveness);
    for (std::byte& byte : segment.window(0)) byte = std::byte{1};
    fence.publish(host::Phase::kWritten);
    fence.wait_all(host::Phase::kWritten, deadline);
    fence.publish(host::Phase::kOpened);
    fence.wait_all(host::Phase::kOpened, deadline);
  });
  if (!eventually([&] { return segment_is_named(waiting); })) return "no waiting session";

  Random random(seed);
  Tally tally;
  const StageSeconds usual = usual_seconds();
  while (tally.kills < wanted) {
    if (std::string text = kill_some(random, usual, tally); !text.empty()) return text;
  }
  const std::size_t left = shm_entries().size() - 1;
  const Outcome clean = run_program("TMPDIR=/dev/shm $RINGBELL clean");
  const auto after = shm_entries();
  std::printf("%llu kills in %llu sessions", static_cast<unsigned long long>(tally.kills),
              static_cast<unsigned long long>(tally.sessions));
  for (std::size_t stage = 0; stage < kStageCount; ++stage) {
    std::printf(", %llu in %s", static_cast<unsigned long long>(tally.in_stage[stage]), kStageNames[stage]);
  }
  std::printf("; %zu objects before clean, %zu after, of live sessions 1\n", left, after.size() - 1);
  std::fflush(stdout);
  if (clean.code != 0) return "clean: " + clean.out + clean.err;
  if (after.size() != 1 || !segment_is_named(waiting)) return "left after clean: " + clean.out;
  if (lines_of(clean.out).size() != left + 1) return "other lines than objects: " + clean.out;

  words[0] = 1;
  for (const ProcessResult& result : running.wait_all()) {
    if (result.code != 0) return "the running session: " + result.text;
  }
  host::Rank one([&] { host::set_up(waiting, 1, 2); });
  const std::string one_text = one.result();
  const std::string zero_text = zero.result();
  if (!zero_text.empty()) return "the waiting session: " + zero_text + " | " + one_text;
  return shm_entries().empty() ? "" : "left: " + shm_entries().front();
}

TEST(Kills, AtAnyInstantLeaveNothingThatCleanDoesNotRemoveAndNoLiveSessionIsTouched) {
  if (!may_enter_private_shm()) GTEST_SKIP() << "no leave for mount namespaces";
  const std::uint64_t kills = number_from("RINGBELL_TEST_KILLS", 60);
  const std::uint64_t seed = number_from("RINGBELL_TEST_SEED", 1);
  RankProcesses house(
      1, [&](int) { return enter_private_shm() ? kill_many(kills, seed) : std::string("no mount"); }, 550);
  const ProcessResult result = house.wait(0);
  EXPECT_EQ(result.code, 0) << "seed " << seed << ", signal " << result.signal << ": " << result.text;
}

}  // namespace
}  // namespace ringbell::test
