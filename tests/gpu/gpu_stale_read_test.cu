// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A kernel that stays must not read or leave yesterday's data. Inputs: the same buffers rewritten between calls by a
// kernel, a copy from the host and a copy on the device, 10,000 times a protocol. Results: right after each wait a
// later kernel, a copy to the host and a peer that has mapped `out` all look at it, 100,000 times (RINGBELL_TEST_CALLS
// changes that); this is what a gpu-scope completion fence rests on. ringbell-test: timeout=400
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {
namespace {

// Sizes that stay in an SM's L1 cache, the last one barely.
constexpr std::uint32_t kCounts[] = {64, 1000, 5000, 16384, 40000};
constexpr std::uint32_t kCapacity = 40000;  // uint32

__host__ __device__ inline std::uint32_t value(std::uint32_t rank, std::uint32_t call, std::uint32_t i) {
  std::uint32_t x = i * 0x9e3779b1U + call * 0x85ebca6bU + rank * 0xc2b2ae35U + 1;
  x ^= x >> 15;
  x *= 0x2c1b3c6dU;
  return x ^ (x >> 13);
}
__host__ __device__ inline std::uint32_t sum_of_ranks(std::uint32_t world, std::uint32_t call, std::uint32_t i) {
  std::uint32_t sum = 0;
  for (std::uint32_t rank = 0; rank < world; ++rank) sum += value(rank, call, i);
  return sum;
}

__global__ void write_values(std::uint32_t* to, std::uint32_t rank, std::uint32_t call, std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = value(rank, call, i);
}

/// memory: device, one per looker. writer: check kernels. zero: nothing wrong so far.
struct Findings {
  unsigned long long wrong;  // elements
  unsigned first_call;       // + 1
  unsigned index;
  unsigned seen;
};

__global__ void check_values(Findings* findings, const std::uint32_t* from, std::uint32_t world, std::uint32_t call,
                             std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const std::uint32_t seen = from[i];
    if (seen == sum_of_ranks(world, call, i)) continue;
    atomicAdd(&findings->wrong, 1ULL);
    if (atomicCAS(&findings->first_call, 0U, call + 1) == 0) {
      findings->index = i;
      findings->seen = seen;
    }
  }
}

constexpr unsigned kThreads = 256;
unsigned blocks_for(std::uint32_t count) { return std::min<unsigned>((count + kThreads - 1) / kThreads, 32); }

/// Findings on the device and how they are told.
class Looker {
 public:
  explicit Looker(const char* name) : name_(name), findings_(1) {
    cuda_ok(cudaMemset(findings_.get(), 0, sizeof(Findings)), "cudaMemset");
    cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  void look(const std::uint32_t* from, std::uint32_t world, std::uint32_t call, std::uint32_t count,
            const Stream& stream) const {
    check_values<<<blocks_for(count), kThreads, 0, stream.get()>>>(findings_.get(), from, world, call, count);
    cuda_ok(cudaGetLastError(), "check_values");
  }
  void require_nothing(std::uint32_t world, const Stream& stream) const {
    Findings found{};
    stream.copy(&found, findings_.get(), sizeof found);
    if (found.wrong == 0) return;
    const std::uint32_t call = found.first_call - 1;
    throw std::runtime_error(
        std::string(name_) + ": " + std::to_string(found.wrong) + " wrong elements; first in call " +
        std::to_string(call) + ": element " + std::to_string(found.index) + " is " + std::to_string(found.seen) +
        ", not " + std::to_string(sum_of_ranks(world, call, found.index)) +
        (call > 0 && found.seen == sum_of_ranks(world, call - 1, found.index) ? " (the call before)" : ""));
  }

 private:
  const char* name_;
  DeviceArray<Findings> findings_;
};

/// A worker that is resident through many calls: no idle park, the usual lease.
Config resident_config(const RankSelf& self) {
  Config config = self.config();
  config.idle_park_us = 5000;
  return config;
}

// Processes that take turns on a GPU need milliseconds a call.
std::uint64_t calls_here(std::uint64_t calls) { return side_by_side() || calls < 2000 ? calls : calls / 20; }

// ---- inputs ---------------------------------------------------------------------------------------------------------

void run_inputs(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const auto world = static_cast<std::uint32_t>(self.world());
  const auto rank = static_cast<std::uint32_t>(self.rank());
  const auto calls = static_cast<std::uint32_t>(std::stoul(self.argument()));
  const DeviceArray<std::uint32_t> in(kCapacity);
  const DeviceArray<std::uint32_t> out(kCapacity);
  const DeviceArray<std::uint32_t> other(kCapacity);
  const PinnedArray<std::uint32_t> host(kCapacity);
  const Stream stream;
  const Looker looker("a kernel after the wait");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), resident_config(self));
  for (const Protocol protocol : kProtocols) {
    if (protocol == Protocol::kLL128 && contains(comm.describe(), "LL128 not permitted")) continue;
    self.step(std::string("rewritten inputs, ") + protocol_name(protocol), 90);
    CallOptions options;
    options.protocol = protocol;
    for (std::uint32_t call = 0; call < calls; ++call) {
      const std::uint32_t count = kCounts[call / 7 % std::size(kCounts)];
      const std::size_t bytes = count * sizeof(std::uint32_t);
      switch (call % 3) {
        case 0: write_values<<<blocks_for(count), kThreads, 0, stream.get()>>>(in.get(), rank, call, count); break;
        case 1:
          for (std::uint32_t i = 0; i < count; ++i) host[i] = value(rank, call, i);
          cuda_ok(cudaMemcpyAsync(in.get(), host.get(), bytes, cudaMemcpyHostToDevice, stream.get()),
                  "cudaMemcpyAsync");
          break;
        default:
          write_values<<<blocks_for(count), kThreads, 0, stream.get()>>>(other.get(), rank, call, count);
          cuda_ok(cudaMemcpyAsync(in.get(), other.get(), bytes, cudaMemcpyDeviceToDevice, stream.get()),
                  "cudaMemcpyAsync");
      }
      cuda_ok(cudaGetLastError(), "write_values");
      stream.sync();
      require_ok(comm, comm.all_reduce(in.get(), out.get(), count, DType::kUInt32, ReduceOp::kSum, options));
      looker.look(out.get(), world, call, count, stream);
    }
    looker.require_nothing(world, stream);
  }
  const Stats stats = comm.stats();
  std::printf("rank %d: %u calls a protocol, %llu launches\n", self.rank(), calls,
              static_cast<unsigned long long>(stats.launches));
  if (!self.shares_device() || mps_runs()) {
    require(stats.launches * 5 < std::uint64_t{calls} * 3 + 100,
            "a launch for every few calls: the worker was not resident");
  }
  self.step("leave");
}
const RankProgram kInputs("inputs", run_inputs);

TEST(GpuStaleRead, InputsRewrittenBetweenCallsAreReadAsTheyAreNow) {
  GroupOptions options;
  options.world = 2;
  options.devices = gpu_count();
  options.argument = std::to_string(calls_here(10'000));
  options.limit_s = 200;
  run_group("inputs", options);
}

// ---- results --------------------------------------------------------------------------------------------------------

constexpr std::size_t kOutDone = 0;  // board word + rank: calls whose wait has returned

void run_results(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const auto world = static_cast<std::uint32_t>(self.world());
  const auto rank = static_cast<std::uint32_t>(self.rank());
  const int peer = (self.rank() + 1) % self.world();
  const auto calls = static_cast<std::uint32_t>(std::stoul(self.argument()));
  const DeviceArray<std::uint32_t> in(kCapacity);
  const DeviceArray<std::uint32_t> out(kCapacity);
  const PinnedArray<std::uint32_t> host(kCapacity);
  const Stream kernels;
  const Stream copies;
  const Looker own("a kernel of this rank after the wait");
  const Looker mapped("a kernel of the peer, through IPC, after the wait");
  cudaIpcMemHandle_t handle{};
  cuda_ok(cudaIpcGetMemHandle(&handle, out.get()), "cudaIpcGetMemHandle");
  std::memcpy(self.board.blob[self.rank()], &handle, sizeof handle);
  self.meet();
  std::memcpy(&handle, self.board.blob[peer], sizeof handle);
  void* peer_out = nullptr;
  cuda_ok(cudaIpcOpenMemHandle(&peer_out, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), resident_config(self));
  self.step(std::to_string(calls) + " calls", 330);
  for (std::uint32_t call = 0; call < calls; ++call) {
    const std::uint32_t count = kCounts[call / 5 % 3];
    CallOptions options;
    options.protocol = kProtocols[call / 64 % 3];
    write_values<<<blocks_for(count), kThreads, 0, kernels.get()>>>(in.get(), rank, call, count);
    kernels.sync();
    Ticket ticket = comm.all_reduce(in.get(), out.get(), count, DType::kUInt32, ReduceOp::kSum, options);
    if (ticket.status == Status::kUnsupported) {  // LL128, on every rank alike
      options.protocol = Protocol::kLL;
      ticket = comm.all_reduce(in.get(), out.get(), count, DType::kUInt32, ReduceOp::kSum, options);
    }
    const Status status = comm.wait(ticket);
    self.board.words[kOutDone + static_cast<std::size_t>(self.rank())].store(call + 1);
    own.look(out.get(), world, call, count, kernels);
    cuda_ok(cudaMemcpyAsync(host.get(), out.get(), count * sizeof(std::uint32_t), cudaMemcpyDeviceToHost, copies.get()),
            "D2H");
    require_ok(comm, status, "call " + std::to_string(call));
    while (self.board.words[kOutDone + static_cast<std::size_t>(peer)].load() <= call) {
    }
    mapped.look(static_cast<const std::uint32_t*>(peer_out), world, call, count, kernels);
    copies.sync();
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t expected = sum_of_ranks(world, call, i);
      if (host[i] == expected) continue;
      throw std::runtime_error("a copy to the host after the wait: call " + std::to_string(call) + ", element " +
                               std::to_string(i) + " is " + std::to_string(host[i]) + ", not " +
                               std::to_string(expected));
    }
    kernels.sync();
    self.meet();  // both have looked: `out` may change
  }
  own.require_nothing(world, kernels);
  mapped.require_nothing(world, kernels);
  const Stats stats = comm.stats();
  std::printf("rank %d: %u results seen by a kernel, a copy and a peer; %llu launches\n", self.rank(), calls,
              static_cast<unsigned long long>(stats.launches));
  self.step("leave");
  cuda_ok(cudaIpcCloseMemHandle(peer_out), "cudaIpcCloseMemHandle");
  self.meet();  // nobody frees what the other has mapped
}
const RankProgram kResults("results", run_results);

TEST(GpuStaleRead, AResultIsCompleteForEveryReaderOnceWaitReturns) {
  GroupOptions options;
  options.world = 2;
  options.devices = gpu_count();
  options.argument = std::to_string(calls_here(number_from_env("RINGBELL_TEST_CALLS", 100'000)));
  options.limit_s = 350;
  run_group("results", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
