// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's process is killed in the middle of a call: the other gets an error that names it, in time, and its GPU works
// on (other memory, other copies, a new communicator). Run it without MPS on one GPU: the death of a client may take
// the MPS server along. ringbell-test: timeout=180
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kCount = 1 << 14;
constexpr double kTimeoutSeconds = 3;

// Board words.
constexpr std::size_t kCalls = 0;     // completed by the survivor
constexpr std::size_t kKilledAt = 1;  // steady clock, ns

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// The argument "late": rank 1 stops calling before it is killed, so that rank 0 waits inside a call for it.
void run_victim_and_survivor(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Config config = self.config();
  config.timeout_s = kTimeoutSeconds;
  std::string text;
  Status status = Status::kOk;
  {
    const DeviceArray<float> in(kCount);
    const DeviceArray<float> out(kCount);
    cuda_ok(cudaMemset(in.get(), 0, kCount * sizeof(float)), "cudaMemset");
    cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    Communicator comm(self.id(), self.rank(), self.world(), config);
    self.step("calls until the peer is killed", 40);
    for (std::uint64_t call = 0; status == Status::kOk; ++call) {
      if (self.rank() == 1 && self.argument() == "late" && call == 50) sleep_s(1000);
      status = comm.wait(comm.all_reduce(in.get(), out.get(), kCount, DType::kFloat32));
      if (self.rank() == 0 && status == Status::kOk) self.board.words[kCalls].store(call + 1);
    }
    const double seconds = static_cast<double>(now_ns() - self.board.words[kKilledAt].load()) * 1e-9;
    text = comm.last_error();
    std::printf("rank %d: %s after %.2f s: %s\n", self.rank(), status_name(status), seconds, text.c_str());
    std::fflush(stdout);
    require(self.rank() == 0, "rank 1 should have been killed");
    require(status == Status::kPeerLost || status == Status::kTimeout,
            std::string("status ") + status_name(status) + ": " + text);
    require(contains(text, "rank 1"), "the error does not name rank 1: " + text);
    require(seconds < (kTimeoutSeconds + 5) * time_scale(),
            "the error came " + std::to_string(seconds) + " s after the kill");
    self.step("calls on the broken communicator");
    const Stopwatch watch;
    require(comm.wait(comm.all_reduce(in.get(), out.get(), kCount, DType::kFloat32)) != Status::kOk,
            "a call on a broken communicator succeeds");
    require(watch.seconds() < 1, "a broken communicator does not answer at once");
    self.step("leave the broken communicator", 30);
  }
  self.step("use the GPU afterwards");
  cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::vector<std::uint32_t> sent(kCount, 0xabcd1234);
  std::vector<std::uint32_t> got(kCount);
  const DeviceArray<std::uint32_t> a(kCount);
  const DeviceArray<std::uint32_t> b(kCount);
  const Stream stream;
  stream.copy(a.get(), sent.data(), kCount * 4);
  self.step("a new communicator on the same GPU", 40);
  Communicator alone(unique_id_create(), 0, 1, self.config());
  require_ok(alone, alone.all_reduce(a.get(), b.get(), kCount, DType::kUInt32));
  stream.copy(got.data(), b.get(), kCount * 4);
  require(got == sent, "the GPU gives wrong data after the loss of a peer");
  self.step("leave");
}
const RankProgram kProgram("victim and survivor", run_victim_and_survivor);

void kill_rank_1(const char* when) {
  GroupOptions options;
  options.world = 2;
  options.devices = gpu_count();
  options.argument = when;
  options.limit_s = 75;
  RankGroup group("victim and survivor", options);
  ASSERT_TRUE(group.await(kCalls, 50, 60)) << "the ranks did not get as far as 50 calls";
  sleep_s(std::strcmp(when, "late") == 0 ? 0.3 : 0.0123);
  group.board().words[kKilledAt].store(now_ns());
  group.signal(1, SIGKILL);
  const RankResult victim = group.wait(1);
  EXPECT_EQ(victim.signal, SIGKILL) << victim.text;
  const RankResult survivor = group.wait(0);
  EXPECT_EQ(survivor.code, 0) << survivor.text << " (signal " << survivor.signal << ")";
}

TEST(GpuPeerLost, ARankKilledBetweenItsCallsIsNamedAndTheGpuWorksOn) { kill_rank_1("late"); }
TEST(GpuPeerLost, ARankKilledInTheStreamOfCallsIsNamedAndTheGpuWorksOn) { kill_rank_1("any time"); }

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
