// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a communicator tells of itself: bytes, calls, path, one line of description.
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

// Counted where lines are published. A ring that sends a byte too many or too few is no ring.
TEST(Stats, SentBytesSummedOverRanksAreExactlyThoseOfTheAlgorithmByProtocol) {
  for (int world : {1, 2, 3, 4, 5, 7, 8}) {
    Config config = cpu_config();
    config.slot_bytes = 1920;
    std::uint64_t expected[kProtocolCount] = {};
    std::vector<AllReduceCase> cases;
    for (std::uint64_t count : {0u, 1u, 5u, 480u, 481u, 3001u, 12345u}) {
      for (Protocol protocol : kProtocols) {
        for (DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat64}) {
          const Algorithm algorithm = kAlgorithms[cases.size() % 2];
          cases.push_back({count, dtype, ReduceOp::kMax, protocol});
          cases.back().algorithm = algorithm;
          const int times = algorithm == Algorithm::kRing ? 2 : world;
          expected[static_cast<int>(protocol)] +=
              static_cast<std::uint64_t>(times * (world - 1)) * count * dtype_bytes(dtype);
        }
      }
    }
    const auto stats = run_ranks(world, config, [&](Communicator& comm) {
      std::vector<std::byte> buffer(12345 * 8);
      for (const AllReduceCase& c : cases) {
        CallOptions options;
        options.protocol = c.protocol;
        options.algorithm = c.algorithm;
        EXPECT_EQ(wait_ok(comm, comm.all_reduce(buffer.data(), buffer.data(), c.count, c.dtype, c.op, options)), "");
      }
      return comm.stats();
    });
    for (Protocol protocol : kProtocols) {
      std::uint64_t sent = 0;
      for (const Stats& s : stats) sent += s.sent_bytes[static_cast<std::size_t>(protocol)];
      EXPECT_EQ(sent, expected[static_cast<int>(protocol)]) << protocol_name(protocol) << ", world " << world;
    }
    for (const Stats& s : stats) {
      EXPECT_EQ(s.calls, cases.size());
      EXPECT_EQ(s.sent_bytes[0], 0u);
    }
  }
}

TEST(Stats, TheLastPathIsTheOneAskedForOrPlanned) {
  Communicator comm(unique_id_create(), 0, 1, cpu_config());
  std::vector<float> buffer(100000);
  const auto path_of = [&](std::uint64_t count, Protocol protocol) {
    CallOptions options;
    options.protocol = protocol;
    EXPECT_EQ(comm.wait(comm.all_reduce(buffer.data(), buffer.data(), count, DType::kFloat32, ReduceOp::kSum, options)),
              Status::kOk);
    return comm.stats().last_path;
  };
  for (Protocol protocol : kProtocols) EXPECT_EQ(path_of(10, protocol).protocol, protocol);
  EXPECT_EQ(path_of(10, Protocol::kAuto).protocol, Protocol::kLL);
  EXPECT_EQ(path_of(100000, Protocol::kAuto).protocol, Protocol::kSimple);
  EXPECT_EQ(path_of(1, Protocol::kAuto).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(path_of(100000, Protocol::kAuto).algorithm, Algorithm::kRing);
  EXPECT_EQ(path_of(1, Protocol::kAuto).channels, 1u);
}

TEST(Stats, AForcedProtocolOfTheConfigHoldsUnlessTheCallNamesAnother) {
  Config config = cpu_config();
  config.protocol = Protocol::kLL128;
  Communicator comm(unique_id_create(), 0, 1, config);
  float value = 1;
  EXPECT_EQ(comm.wait(comm.all_reduce(&value, &value, 1, DType::kFloat32)), Status::kOk);
  EXPECT_EQ(comm.stats().last_path.protocol, Protocol::kLL128);
  CallOptions options;
  options.protocol = Protocol::kSimple;
  EXPECT_EQ(comm.wait(comm.all_reduce(&value, &value, 1, DType::kFloat32, ReduceOp::kSum, options)), Status::kOk);
  EXPECT_EQ(comm.stats().last_path.protocol, Protocol::kSimple);
}

TEST(Stats, WaitTimeIsTheTimeInsideWait) {
  const auto waited = run_ranks(2, cpu_config(), [](Communicator& comm) {
    float value = 1;
    if (comm.rank() == 1) sleep_s(0.1);
    const Stopwatch watch;
    EXPECT_EQ(wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kFloat32)), "");
    EXPECT_LE(static_cast<double>(comm.stats().wait_ns), watch.seconds() * 1e9);
    return comm.stats().wait_ns;
  });
  EXPECT_GE(waited[0], 50'000'000u);
}

TEST(Stats, TheDescriptionNamesRankWorldDeviceProtocolsQueueLeaseAndSession) {
  Config config = cpu_config();
  config.queue_depth = 8;
  config.lease_us = 1234;
  const auto lines = run_ranks(2, config, [](Communicator& comm) { return comm.describe(); });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& line = lines[static_cast<std::size_t>(rank)];
    for (const std::string& part :
         {"rank " + std::to_string(rank) + " of 2", std::string("cpu"), std::string("LL LL128 Simple"),
          std::string("queue 8"), std::string("lease 1234 us"), std::string("/ringbell-")}) {
      EXPECT_NE(line.find(part), std::string::npos) << line;
    }
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace ringbell::test
