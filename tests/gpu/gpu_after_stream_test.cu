// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Host-issued calls after a CUDA stream: 100,000 (RINGBELL_TEST_CALLS changes that) with producers of 0 to 200 us and
// one in 100 of up to 20 ms, which write their buffer at their very end; a second thread frees memory and makes first
// launches the whole time. None hangs, none reads early.
// ringbell-test: timeout=400
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint32_t kCount = 256;

__global__ void produce(std::uint32_t* to, std::uint32_t value, std::uint64_t delay_ns) {
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < delay_ns);
  to[threadIdx.x] = value;
}

template <int kWhich>
__global__ void fresh_kernel(int* out) {
  *out = kWhich;
}
using Kernel = void (*)(int*);
template <int... kWhich>
constexpr std::array<Kernel, sizeof...(kWhich)> fresh_kernels(std::integer_sequence<int, kWhich...>) {
  return {fresh_kernel<kWhich>...};
}
constexpr auto kFresh = fresh_kernels(std::make_integer_sequence<int, 64>{});

/// What drains the device, again and again.
void disturb(int device, const std::atomic<bool>& stop, std::uint64_t* rounds) {
  cuda_ok(cudaSetDevice(device), "cudaSetDevice");
  const Stream stream;
  DeviceArray<int> out(1);
  for (; !stop; ++*rounds) {
    void* memory = nullptr;
    cuda_ok(cudaMalloc(&memory, 1 << 20), "cudaMalloc");
    if (*rounds < kFresh.size()) kFresh[*rounds]<<<1, 1, 0, stream.get()>>>(out.get());
    cuda_ok(cudaGetLastError(), "first launch");
    cuda_ok(cudaFree(memory), "cudaFree");
    sleep_s(0.005);
  }
}

void run_after(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const std::uint64_t calls = number_from_env("RINGBELL_TEST_CALLS", 100'000) / (side_by_side() ? 1 : 100);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  const Stream stream;
  DeviceArray<std::uint32_t> in(kCount);
  PinnedArray<std::uint32_t> out(kCount);  // the host may look as soon as wait says so
  std::atomic<bool> stop{false};
  std::uint64_t rounds = 0;
  std::string failure;
  std::thread other([&] {
    try {
      disturb(self.device(), stop, &rounds);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  try {
    self.step("calls after a stream", 180);
    std::uint64_t random = 12345 + static_cast<std::uint64_t>(self.rank()) * 77;
    CallOptions options;
    options.after = ringbell::Stream{stream.get()};
    const auto world = static_cast<std::uint32_t>(self.world());
    for (std::uint32_t call = 1; call <= calls; ++call) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const std::uint64_t draw = random >> 33;
      const std::uint64_t delay_ns = draw % 100 == 0 ? draw / 100 % 20'000'000 : draw / 100 % 200'000;
      produce<<<1, kCount, 0, stream.get()>>>(in.get(), call * (static_cast<std::uint32_t>(self.rank()) + 1),
                                              call % 5 == 0 ? 0 : delay_ns);
      cuda_ok(cudaGetLastError(), "produce");
      require_ok(comm, comm.all_reduce(in.get(), out.get(), kCount, DType::kUInt32, ReduceOp::kSum, options));
      for (std::uint32_t i = 0; i < kCount; ++i) {
        require(out[i] == call * (world * (world + 1) / 2),
                "call " + std::to_string(call) + " element " + std::to_string(i) + " is " + std::to_string(out[i]));
      }
    }
  } catch (...) {
    stop = true;
    comm.abort();
    other.join();
    throw;
  }
  stop = true;
  other.join();
  require(failure.empty(), failure);
  std::printf("rank %d: %llu calls after a stream, %llu launches, %llu rounds of cudaFree and first launches\n",
              self.rank(), static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(comm.stats().launches), static_cast<unsigned long long>(rounds));
  self.step("leave");
  self.meet();
}
const RankProgram kAfter("after", run_after);
TEST(GpuAfterStream, NoCallReadsEarlyAndNoneHangsBesideCallsThatDrainTheDevice) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  options.limit_s = 220;
  run_group("after", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
