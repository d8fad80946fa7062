// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What set-up finds out about the links, and that a fault in one is seen: LL128 is permitted where ranks share a GPU or
// are joined by NVLink and every line came whole, and refused elsewhere; a flipped publish (RINGBELL_FAULT) is in the
// data. ringbell-test: timeout=180
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kCount = 1000;

/// Sums of one call whose inputs are rank + i.
std::vector<std::uint32_t> sums(RankSelf& self, Communicator& comm, Protocol protocol) {
  const Stream stream;
  const DeviceArray<std::uint32_t> in(kCount);
  const DeviceArray<std::uint32_t> out(kCount);
  std::vector<std::uint32_t> values(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i)
    values[i] = static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(self.rank());
  stream.copy(in.get(), values.data(), kCount * 4);
  CallOptions options;
  options.protocol = protocol;
  require_ok(comm, comm.all_reduce(in.get(), out.get(), kCount, DType::kUInt32, ReduceOp::kSum, options), "all_reduce");
  stream.copy(values.data(), out.get(), kCount * 4);
  self.meet();  // nobody frees its buffers before all have read theirs
  return values;
}

std::uint64_t wrong_elements(const RankSelf& self, const std::vector<std::uint32_t>& got) {
  const auto world = static_cast<std::uint32_t>(self.world());
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    if (got[i] != world * static_cast<std::uint32_t>(i) + world * (world - 1) / 2) ++wrong;
  }
  return wrong;
}

/// True when every pair of ranks shares a GPU or has native atomics on the other's, the sign of NVLink.
bool lines_should_stay_whole(const RankSelf& self) {
  if (self.shares_device() && gpu_count() == 1) return true;
  bool all = true;
  for (int peer = 0; peer < gpu_count() && peer < self.world(); ++peer) {
    int atomics = 1;
    if (peer != self.device()) {
      cuda_ok(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, self.device(), peer),
              "cudaDeviceGetP2PAttribute");
    }
    all = all && atomics != 0;
  }
  return all;
}

void run_permission(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 60);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  const bool refused = contains(comm.describe(), "LL128 not permitted");
  require(refused != lines_should_stay_whole(self), "the links say otherwise: " + comm.describe());
  self.step("call over LL128");
  if (refused) {
    const DeviceArray<std::uint32_t> buffer(1);
    CallOptions options;
    options.protocol = Protocol::kLL128;
    const Ticket ticket = comm.all_reduce(buffer.get(), buffer.get(), 1, DType::kUInt32, ReduceOp::kSum, options);
    require(ticket.status == Status::kUnsupported, "LL128 was taken over a link that may tear its lines");
  } else {
    require(wrong_elements(self, sums(self, comm, Protocol::kLL128)) == 0, "wrong sums over LL128");
  }
  self.meet();
}
const RankProgram kPermission("permission", run_permission);

void run_flipped(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 60);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  self.step("a call with one flipped bit");
  const std::uint64_t first = wrong_elements(self, sums(self, comm, Protocol::kLL));
  self.step("the call after it");
  const std::uint64_t second = wrong_elements(self, sums(self, comm, Protocol::kLL));
  self.board.words[0].fetch_add(first);
  require(second == 0, "a call without a fault has wrong sums");
  self.meet();
  require(self.board.words[0].load() != 0, "nobody saw the flipped bit");
}
const RankProgram kFlipped("flipped", run_flipped);

GroupOptions group_of(int world) {
  GroupOptions options;
  options.world = world;
  options.devices = gpu_count();
  return options;
}

TEST(GpuLinks, Ll128IsPermittedExactlyWhereLinesComeWhole) { run_group("permission", group_of(2)); }
TEST(GpuLinks, FourRanksTestAllTheirPairs) { run_group("permission", group_of(4)); }

TEST(GpuLinks, AFlippedPublishIsSeenInTheDataAndOnlyThere) {
  GroupOptions options = group_of(2);
  options.environment = {"RINGBELL_FAULT=flip:rank=1:publish=100"};
  run_group("flipped", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
