// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Host-issued calls where no worker may stay: each is launched, on the same slots and epochs, and fits ranks whose
// workers do stay.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

/// Joins on `world` threads; the ranks in `refused` may not keep a worker. Set-up reads the environment, so ranks take
/// turns to begin it, and the first waits for the others in another thread.
template <class Body>
std::vector<std::string> run_with_refused(int world, unsigned refused, Body body) {
  RankProcesses ranks(world, [&, id = unique_id_create()](int rank) -> std::string {
    if ((refused >> rank & 1) != 0) setenv("RINGBELL_RESIDENT", "0", 1);
    Communicator comm(id, rank, world, cpu_config());
    return body(comm, (refused >> rank & 1) != 0);
  });
  std::vector<std::string> texts;
  for (const ProcessResult& result : ranks.wait_all()) {
    texts.push_back(result.signal != 0 ? "signal " + std::to_string(result.signal) : result.text);
  }
  return texts;
}
void expect_empty(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], "") << "rank " << rank;
}

TEST(CaseC17, ARankThatMayNotStayServesTheSameCallsByALaunchEach) {
  for (const unsigned refused : {0b111u, 0b001u, 0b110u}) {
    expect_empty(run_with_refused(3, refused, [](Communicator& comm, bool is_refused) -> std::string {
      const int calls = is_sanitized() ? 100 : 1000;
      for (int call = 1; call <= calls; ++call) {
        std::vector<std::int64_t> values(call % 5 == 0 ? 3000 : 7, std::int64_t{call} * (comm.rank() + 1));
        CallOptions options;
        options.protocol = kProtocols[call % 3];
        const Ticket ticket =
            comm.all_reduce(values.data(), values.data(), values.size(), DType::kInt64, ReduceOp::kSum, options);
        if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
        for (const std::int64_t value : values) {
          if (value != std::int64_t{call} * 6) return "call " + std::to_string(call) + ": " + std::to_string(value);
        }
      }
      const Stats stats = comm.stats();
      if (is_refused && stats.launches < static_cast<std::uint64_t>(calls) * 9 / 10) {
        return "only " + std::to_string(stats.launches) + " launches for " + std::to_string(calls) + " calls";
      }
      if (is_refused != (comm.describe().find("each call is launched (RINGBELL_RESIDENT=0)") != std::string::npos)) {
        return comm.describe();
      }
      return "";
    }));
  }
}

TEST(CaseC17, HoldDoesNotKeepAWorkerThatMayNotStay) {
  expect_empty(run_with_refused(2, 0b11u, [](Communicator& comm, bool) -> std::string {
    if (comm.hold() != Status::kOk) return comm.last_error();
    for (int call = 0; call < 20; ++call) {
      std::int64_t value = 1;
      if (std::string text = wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kInt64)); !text.empty())
        return text;
      if (std::string text = wait_ok(comm, comm.nop()); !text.empty()) return text;
      if (comm.park(5 * patience()) != Status::kOk) return "not at rest: " + comm.last_error();
    }
    return comm.release() == Status::kOk ? "" : comm.last_error();
  }));
}

}  // namespace
}  // namespace ringbell::test
