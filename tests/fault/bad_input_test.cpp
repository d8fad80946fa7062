// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Bad input at the communicator: an error that names the value and the remedy, nothing queued, nothing left behind, and
// the communicator (or the next one) works.
#include <limits>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

struct Refusal {
  Status status = Status::kOk;
  std::string text;
};

Refusal refusal_of(const UniqueId& id, int rank, int world, const Config& config) {
  try {
    const Communicator comm(id, rank, world, config);
    return {};
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

void expect_refused(const Config& config, const std::vector<std::string>& parts, int rank = 0, int world = 1,
                    Status status = Status::kInvalidArgument) {
  const UniqueId id = unique_id_create();
  const Refusal refusal = refusal_of(id, rank, world, config);
  EXPECT_EQ(refusal.status, status) << refusal.text;
  expect_parts(refusal.text, parts);
  EXPECT_FALSE(segment_is_named(id)) << refusal.text;
}

/// Sets a variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// ---- calls ----------------------------------------------------------------------------------------------------------

TEST(BadCall, EveryBadArgumentIsRefusedWithItsValueAndTheCommunicatorGoesOn) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  std::vector<float> a(100, 1.0f);
  std::vector<float> b(100);
  const auto refused = [&](const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op,
                           const CallOptions& options, const std::vector<std::string>& parts) {
    const Ticket ticket = comm.all_reduce(in, out, count, dtype, op, options);
    EXPECT_EQ(ticket.status, Status::kInvalidArgument) << parts[0];
    expect_parts(comm.last_error(), parts);
    expect_parts(comm.last_error(), {"rank 0"});
  };
  const CallOptions none;
  const auto f32 = DType::kFloat32;
  const auto sum = ReduceOp::kSum;
  refused(nullptr, b.data(), 3, f32, sum, none, {"in is null with count 3", "only with count 0"});
  refused(a.data(), nullptr, 4, f32, sum, none, {"out is null with count 4", "only with count 0"});
  refused(a.data(), b.data(), 1, static_cast<DType>(12), sum, none, {"dtype 12", "0 to 11"});
  refused(a.data(), b.data(), 1, static_cast<DType>(255), sum, none, {"dtype 255"});
  refused(a.data(), b.data(), 0, static_cast<DType>(99), sum, none, {"dtype 99"});
  refused(a.data(), b.data(), 1, f32, static_cast<ReduceOp>(5), none, {"op 5", "0 to 4"});
  refused(a.data(), b.data(), std::numeric_limits<std::uint64_t>::max(), f32, sum, none,
          {"count 18446744073709551615", "float32"});
  refused(a.data(), b.data(), std::uint64_t{1} << 62, f32, sum, none, {"count 4611686018427387904"});
  refused(a.data(), b.data(), (std::uint64_t{1} << 61), f32, sum, none, {"leaves the address space"});
  refused(a.data(), a.data() + 1, 50, f32, sum, none, {"overlap", "50 elements of float32", "equal pointers"});
  refused(a.data() + 1, a.data(), 50, f32, sum, none, {"overlap"});
  CallOptions options;
  options.protocol = static_cast<Protocol>(4);
  refused(a.data(), b.data(), 1, f32, sum, options, {"protocol 4", "kLL128"});
  options = {};
  options.algorithm = static_cast<Algorithm>(3);
  refused(a.data(), b.data(), 1, f32, sum, options, {"algorithm 3", "kRing", "kOneShot"});

  const Ticket ticket = comm.all_reduce(a.data(), b.data(), 100, f32);
  EXPECT_EQ(ticket.seq, 0u) << "something was queued";
  EXPECT_EQ(comm.wait(ticket), Status::kOk);
  EXPECT_EQ(a, b);
}

TEST(BadCall, AFullQueueSaysSoInTheLastErrorUntilAnotherErrorComes) {
  Config config = cpu_config();
  config.queue_depth = 2;
  Communicator comm(unique_id_create(), 0, 1, config);
  float values[2] = {1, 1};
  const auto call = [&] { return comm.all_reduce(&values[0], &values[1], 1, DType::kFloat32); };
  Ticket tickets[2];
  {
    const ParkedScope away(comm);
    for (Ticket& ticket : tickets) ticket = call();
    EXPECT_EQ(comm.last_error(), "");
    EXPECT_EQ(call().status, Status::kAgain);
    expect_parts(comm.last_error(), {"rank 0", "no room", "2 slots", "Config::queue_depth"});
    EXPECT_EQ(comm.all_reduce(nullptr, &values[1], 1, DType::kFloat32).status, Status::kInvalidArgument);
    expect_parts(comm.last_error(), {"in is null"});
    EXPECT_EQ(comm.nop().status, Status::kAgain);
    expect_parts(comm.last_error(), {"no room"});
    for (const Ticket& ticket : tickets) EXPECT_EQ(comm.wait(ticket, 0), Status::kAgain);
  }
  EXPECT_EQ(comm.wait_all(tickets), Status::kOk);
  EXPECT_EQ(comm.wait(call()), Status::kOk) << comm.last_error();
}

// ---- membership -----------------------------------------------------------------------------------------------------

TEST(BadMembership, WorldAndRankOutOfRangeAreNamed) {
  expect_refused(cpu_config(), {"world is 0", "1 to 8"}, 0, 0);
  expect_refused(cpu_config(), {"world is 9", "1 to 8"}, 0, 9);
  expect_refused(cpu_config(), {"world is -1"}, 0, -1);
  expect_refused(cpu_config(), {"rank is 2 in a world of 2", "0 to 1"}, 2, 2);
  expect_refused(cpu_config(), {"rank is -1"}, -1, 2);
  expect_refused(cpu_config(), {"rank is 8 in a world of 8"}, 8, 8);
}

TEST(BadMembership, AnIdThatNobodyMadeIsRefused) {
  UniqueId id{};
  const Refusal refusal = refusal_of(id, 0, 1, cpu_config());
  EXPECT_EQ(refusal.status, Status::kInvalidArgument) << refusal.text;
  expect_parts(refusal.text, {"id"});
}

/// All end with kInvalidArgument and these words, long before any time-out.
void expect_all_told(const std::vector<Refusal>& refusals, const Stopwatch& watch,
                     const std::vector<std::string>& parts) {
  EXPECT_LT(watch.seconds(), 3 * patience()) << "a time-out ended it";
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(refusal.status, Status::kInvalidArgument) << refusal.text;
    expect_parts(refusal.text, parts);
  }
}

TEST(BadMembership, TheSameRankTwiceIsAnErrorOnEveryRankThatNamesIt) {
  const std::vector<int> worlds[] = {{0, 1, 0}, {0, 1, 1}, {0, 0, 2}, {2, 0, 2}};
  for (const std::vector<int>& ranks : worlds) {
    const int doubled = ranks[0] == ranks[1] ? ranks[1] : ranks[2];
    SCOPED_TRACE("rank " + std::to_string(doubled) + " twice");
    const UniqueId id = unique_id_create();
    const Stopwatch watch;
    const auto refusals =
        run_threads(3, [&](int i) { return refusal_of(id, ranks[static_cast<std::size_t>(i)], 3, cpu_config()); });
    expect_all_told(refusals, watch, {"rank " + std::to_string(doubled) + " is claimed twice", "its own number"});
    EXPECT_FALSE(segment_is_named(id));
  }
}

// Rank 0 never comes: there is no segment by which the two could find each other.
TEST(BadMembership, TheSameRankTwiceIsFoundWithoutRankZero) {
  const UniqueId id = unique_id_create();
  const Stopwatch watch;
  const auto refusals = run_threads(2, [&](int) { return refusal_of(id, 1, 3, cpu_config()); });
  expect_all_told(refusals, watch, {"rank 1 is claimed twice", "by the same process"});
}

TEST(BadMembership, TheSameRankTwiceIsToldToARankZeroThatComesAfterThem) {
  const UniqueId id = unique_id_create();
  const Stopwatch watch;
  const auto refusals = run_threads(3, [&](int i) {
    if (i == 0) sleep_s(0.4);
    return refusal_of(id, i == 0 ? 0 : 1, 3, cpu_config());
  });
  expect_all_told(refusals, watch, {"rank 1 is claimed twice"});
  EXPECT_FALSE(segment_is_named(id));
}

TEST(BadMembership, TheRankIsFreeAgainAfterItWasRefusedTwice) {
  const UniqueId id = unique_id_create();
  (void)run_threads(2, [&](int) { return refusal_of(id, 1, 2, cpu_config()); });
  const auto texts = run_threads(2, [&](int rank) {
    Communicator comm(id, rank, 2, cpu_config());
    float value = 1;
    return wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kFloat32));
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(BadMembership, RanksThatDisagreeOnTheWorldAreAllToldSoAtOnce) {
  for (int odd : {0, 1, 2}) {
    SCOPED_TRACE("rank " + std::to_string(odd) + " has another world");
    const UniqueId id = unique_id_create();
    const Stopwatch watch;
    const auto refusals =
        run_threads(3, [&](int rank) { return refusal_of(id, rank, rank == odd ? 4 : 3, cpu_config()); });
    expect_all_told(refusals, watch, {"world", "3", "4", "rank " + std::to_string(odd), "same world"});
    EXPECT_FALSE(segment_is_named(id));
  }
}

// The refused rank lies outside the world that rank 0 gave: it has no card to write on.
TEST(BadMembership, ARankBeyondTheWorldOfRankZeroIsToldToTheOthers) {
  const UniqueId id = unique_id_create();
  const Stopwatch watch;
  const auto refusals = run_threads(2, [&](int i) { return refusal_of(id, 3 * i, 3 + i, cpu_config()); });
  expect_all_told(refusals, watch, {"world 3", "rank 3 has 4"});
  EXPECT_FALSE(segment_is_named(id));
}

// ---- Config ---------------------------------------------------------------------------------------------------------

TEST(BadConfig, EveryFieldOutOfRangeIsNamedWithItsValueAndWhatIsAllowed) {
  const auto refused = [](const std::function<void(Config&)>& spoil, const std::vector<std::string>& parts) {
    Config config = cpu_config();
    spoil(config);
    expect_refused(config, parts);
  };
  refused([](Config& c) { c.queue_depth = 3; }, {"queue_depth is 3", "power of two from 2 to 4096"});
  refused([](Config& c) { c.queue_depth = 1; }, {"queue_depth is 1", "power of two"});
  refused([](Config& c) { c.queue_depth = 8192; }, {"queue_depth is 8192"});
  refused([](Config& c) { c.slot_bytes = 1000; }, {"slot_bytes is 1000", "multiple of 1920"});
  refused([](Config& c) { c.slot_bytes = 1920 * 5000; }, {"slot_bytes is 9600000", "up to"});
  refused([](Config& c) { c.timeout_s = -2; }, {"timeout_s is -2", "-1 for the default"});
  refused([](Config& c) { c.timeout_s = std::numeric_limits<double>::quiet_NaN(); }, {"timeout_s is", "seconds >= 0"});
  refused([](Config& c) { c.timeout_s = std::numeric_limits<double>::infinity(); },
          {"timeout_s is inf", "0 waits for ever"});
  refused([](Config& c) { c.timeout_s = 1e300; }, {"timeout_s is", "seconds"});
  refused([](Config& c) { c.init_timeout_s = -0.5; }, {"init_timeout_s is -0.5"});
  refused([](Config& c) { c.idle_park_us = -2; }, {"idle_park_us is -2", "microseconds >= 0"});
  refused([](Config& c) { c.lease_us = -100; }, {"lease_us is -100", "microseconds"});
  refused([](Config& c) { c.lease_us = std::numeric_limits<std::int64_t>::max(); },
          {"lease_us is 9223372036854775807"});
  refused([](Config& c) { c.algorithm = static_cast<Algorithm>(7); }, {"algorithm is 7", "kRing"});
  refused([](Config& c) { c.protocol = static_cast<Protocol>(9); }, {"protocol is 9", "kSimple"});
  refused([](Config& c) { c.device = static_cast<DeviceKind>(7); }, {"device is 7", "kCpu"});
  refused([](Config& c) { c.check_pointers = static_cast<CheckPointers>(3); }, {"check_pointers is 3", "kFirst"});
}

TEST(BadConfig, CudaThatIsNotThereIsUnsupportedWithTheReasonAndTheRemedy) {
  Config config = cpu_config();
  config.device = DeviceKind::kCuda;
  const UniqueId id = unique_id_create();
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const Refusal refusal = refusal_of(id, 0, 1, config);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(refusal.status, Status::kUnsupported) << refusal.text;
  expect_parts(refusal.text, {"cuda", "kCpu"});
  EXPECT_FALSE(segment_is_named(id));
}

TEST(BadConfig, RanksThatDisagreeAreAllToldTheFieldAndBothValuesAtOnce) {
  struct Difference {
    const char* field;
    std::function<void(Config&)> set;
    std::vector<std::string> parts;
  };
  const Difference differences[] = {
      {"slot bytes", [](Config& c) { c.slot_bytes = 3840; }, {"slot bytes", "61440", "3840", "Config::slot_bytes"}},
      {"queue", [](Config& c) { c.queue_depth = 128; }, {"queue depth", "64", "128", "Config::queue_depth"}},
      {"algorithm", [](Config& c) { c.algorithm = Algorithm::kRing; }, {"Config::algorithm"}},
      {"protocol", [](Config& c) { c.protocol = Protocol::kSimple; }, {"Config::protocol"}},
      {"first epoch", [](Config& c) { c.first_epoch = 77; }, {"77", "Config::first_epoch"}},
      {"time-out", [](Config& c) { c.timeout_s = 7; }, {"7000", "Config::timeout_s"}},
      {"idle park", [](Config& c) { c.idle_park_us = 77; }, {"77", "Config::idle_park_us"}},
      {"lease", [](Config& c) { c.lease_us = 777; }, {"777", "Config::lease_us"}},
  };
  for (const Difference& difference : differences) {
    for (const int odd : {0, 2}) {
      SCOPED_TRACE(std::string(difference.field) + " of rank " + std::to_string(odd));
      const UniqueId id = unique_id_create();
      const Stopwatch watch;
      const auto refusals = run_threads(3, [&](int rank) {
        Config config = cpu_config();
        if (rank == odd) difference.set(config);
        return refusal_of(id, rank, 3, config);
      });
      expect_all_told(refusals, watch, difference.parts);
      expect_all_told(refusals, watch, {"rank " + std::to_string(odd)});
      EXPECT_FALSE(segment_is_named(id));
    }
  }
}

TEST(BadConfig, AfterARefusalTheSameProcessJoinsAGoodGroup) {
  Config bad = cpu_config();
  bad.slot_bytes = 1;
  (void)refusal_of(unique_id_create(), 0, 2, bad);
  const auto texts = run_ranks(2, cpu_config(), [](Communicator& comm) {
    float value = 1;
    return wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kFloat32));
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

// ---- environment ----------------------------------------------------------------------------------------------------

TEST(BadEnvironment, EveryBadValueIsNamedWithItsVariableAndWhatIsAllowed) {
  struct Bad {
    const char* name;
    const char* value;
    std::vector<std::string> parts;
  };
  const Bad bad[] = {
      {"RINGBELL_PROTO", "LL129", {"RINGBELL_PROTO='LL129'", "LL, LL128, Simple, auto"}},
      {"RINGBELL_PROTO", " ll", {"RINGBELL_PROTO=' ll'"}},
      {"RINGBELL_PROTO", "", {"RINGBELL_PROTO is set but empty"}},
      {"RINGBELL_ALGO", "tree", {"RINGBELL_ALGO='tree'", "ring, oneshot, auto"}},
      {"RINGBELL_DEVICE", "tpu", {"RINGBELL_DEVICE='tpu'", "auto, cpu, cuda"}},
      {"RINGBELL_TIMEOUT_S", "abc", {"RINGBELL_TIMEOUT_S='abc'", "a number from 0"}},
      {"RINGBELL_TIMEOUT_S", "-1", {"RINGBELL_TIMEOUT_S='-1'"}},
      {"RINGBELL_INIT_TIMEOUT_S", "1s", {"RINGBELL_INIT_TIMEOUT_S='1s'"}},
      {"RINGBELL_QUEUE_DEPTH", "65", {"RINGBELL_QUEUE_DEPTH='65'", "a power of two"}},
      {"RINGBELL_SLOT_BYTES", "1000", {"RINGBELL_SLOT_BYTES", "1000", "multiple of 1920"}},
      {"RINGBELL_IDLE_PARK_US", "x", {"RINGBELL_IDLE_PARK_US='x'", "from 0"}},
      {"RINGBELL_LEASE_US", "-5", {"RINGBELL_LEASE_US='-5'"}},
      {"RINGBELL_RESIDENT", "yes", {"RINGBELL_RESIDENT='yes'", "0 or 1"}},
      {"RINGBELL_CHECK_POINTERS", "maybe", {"RINGBELL_CHECK_POINTERS='maybe'", "first, always, off"}},
      {"RINGBELL_ALLOW_SHARED_DEVICE", "2", {"RINGBELL_ALLOW_SHARED_DEVICE='2'", "0 or 1"}},
  };
  for (const Bad& b : bad) {
    SCOPED_TRACE(std::string(b.name) + "='" + b.value + "'");
    const Variable variable(b.name, b.value);
    Config config;
    config.device = DeviceKind::kCpu;
    expect_refused(config, b.parts);
  }
}

TEST(Environment, AFieldSetByTheCallerWinsOverItsVariable) {
  const Variable queue("RINGBELL_QUEUE_DEPTH", "8");
  const Variable lease("RINGBELL_LEASE_US", "5000");
  const Variable idle("RINGBELL_IDLE_PARK_US", "0.5");
  const Variable protocol("RINGBELL_PROTO", "Simple");
  Config config = cpu_config();
  config.lease_us = 7000;
  Communicator comm(unique_id_create(), 0, 1, config);
  expect_parts(comm.describe(), {"queue 8", "lease 7000 us", "idle park 0 us"});
  float value = 1;
  EXPECT_EQ(comm.wait(comm.all_reduce(&value, &value, 1, DType::kFloat32)), Status::kOk);
  EXPECT_EQ(comm.stats().last_path.protocol, Protocol::kSimple);
}

}  // namespace
}  // namespace ringbell::test
