// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Coming and going of the resident kernel, seen by its user: a submit and then no host call, a lease that ends with
// calls queued, two communicators at once, park, hold, last_of_burst, ParkedScope with queued calls, a GPU filled by
// others, and counters that add up. What CUDA calls cost beside it is in gpu_hazards_test. ringbell-test: timeout=300
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kCount = 4096;  // uint32

std::uint32_t value(int rank, std::uint64_t call, std::uint64_t i) {
  const std::uint64_t mixed =
      (i + 1) * 0x9e3779b97f4a7c15u + call * 0xbf58476d1ce4e5b9u + static_cast<std::uint64_t>(rank + 1);
  return static_cast<std::uint32_t>(mixed >> 29);
}

/// Input and output of one call, and a look at the result without asking the communicator.
class Call {
 public:
  Call(RankSelf& self, std::uint64_t call, std::uint64_t count = kCount)
      : self_(self), call_(call), count_(count), in_(count), out_(count), host_(count) {
    for (std::uint64_t i = 0; i < count; ++i) host_[i] = value(self.rank(), call, i);
    stream_.copy(in_.get(), host_.data(), count * sizeof(std::uint32_t));
    std::fill(host_.begin(), host_.end(), 0x7ff57ff5U);
    stream_.copy(out_.get(), host_.data(), count * sizeof(std::uint32_t));
  }
  Ticket submit(Communicator& comm, const CallOptions& options = {}) const {
    return comm.all_reduce(in_.get(), out_.get(), count_, DType::kUInt32, ReduceOp::kSum, options);
  }
  [[nodiscard]] AllReduceCall as_call() const { return {in_.get(), out_.get(), count_, DType::kUInt32}; }
  /// "" or the first wrong element.
  std::string fault() {
    stream_.copy(host_.data(), out_.get(), count_ * sizeof(std::uint32_t));
    for (std::uint64_t i = 0; i < count_; ++i) {
      std::uint32_t expected = 0;
      for (int rank = 0; rank < self_.world(); ++rank) expected += value(rank, call_, i);
      if (host_[i] != expected) {
        return "call " + std::to_string(call_) + ": element " + std::to_string(i) + " is " + std::to_string(host_[i]) +
               ", not " + std::to_string(expected);
      }
    }
    return "";
  }
  void require_right() {
    const std::string text = fault();
    require(text.empty(), text);
  }

 private:
  RankSelf& self_;
  const std::uint64_t call_;
  const std::uint64_t count_;
  DeviceArray<std::uint32_t> in_;
  DeviceArray<std::uint32_t> out_;
  std::vector<std::uint32_t> host_;
  Stream stream_;
};

std::uint64_t all_parks(const Stats& stats) {
  const ParkCounts& parks = stats.parks;
  return parks.idle + parks.lease + parks.peer_lease + parks.request + parks.burst_end;
}

void run(const char* program, double limit_s = 60) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  options.limit_s = limit_s;
  run_group(program, options);
}

void use_device(const RankSelf& self) { cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice"); }

// ---- one submit, and then no host call ------------------------------------------------------------------------------

void run_alone(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  for (std::uint64_t round = 0; round < 20; ++round) {
    Call call(self, round);
    self.step("one submit, then sleep");
    if (round % 2 == 0) require_ok(comm, comm.park(), "park");  // else the worker may be about to leave by itself
    self.meet();
    // Around the idle park of 100 us: a submit that meets the worker polling, leaving or gone.
    if (round % 2 == 1) {
      require_ok(comm, comm.nop(), "nop");
      const Stopwatch watch;
      while (watch.seconds() < 80e-6 + 3e-6 * static_cast<double>(round)) {
      }
    }
    const Ticket ticket = call.submit(comm);
    require(ticket.status == Status::kOk, "submit: " + comm.last_error());
    sleep_s(0.2);
    call.require_right();  // read by a copy; the communicator is not asked before
    require_ok(comm, ticket);
  }
  self.step("leave");
}
const RankProgram kAlone("alone", run_alone);
TEST(GpuResidency, ACallCompletesWithoutAnyHostCallAfterItsSubmit) { run("alone"); }

// The lease ends with calls queued: whoever relaunches, it is not this thread.
void run_queued(RankSelf& self) {
  use_device(self);
  Config config = self.config();
  config.lease_us = 200;
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), config);
  constexpr std::uint64_t kLarge = 1 << 20;  // 4 MB, some 100 us each
  constexpr std::size_t kCalls = 32;
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<AllReduceCall> list;
  for (std::size_t i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<Call>(self, i, kLarge));
    list.push_back(calls.back()->as_call());
  }
  self.meet();
  self.step("submit 32 calls of 4 MB, then sleep");
  std::vector<Ticket> tickets(kCalls);
  require_ok(comm, comm.all_reduce_many(list, tickets), "all_reduce_many");
  sleep_s(2);
  for (const auto& call : calls) call->require_right();
  require_ok(comm, comm.wait_all(tickets), "wait_all");
  const Stats stats = comm.stats();
  require(stats.parks.lease + stats.parks.peer_lease >= 2,
          "32 long calls under a lease of 200 us, and only " + std::to_string(stats.parks.lease) + " + " +
              std::to_string(stats.parks.peer_lease) + " parks at its end");
  self.step("leave");
}
const RankProgram kQueued("queued", run_queued);
TEST(GpuResidency, QueuedCallsOutliveTheLeaseWithoutAHostCall) { run("queued"); }

// ---- two communicators ----------------------------------------------------------------------------------------------

void run_two(RankSelf& self) {
  use_device(self);
  if (self.rank() == 0) {
    const UniqueId id = unique_id_create();
    std::memcpy(self.board.blob[0], id.bytes, kUniqueIdBytes);
  }
  self.step("join the first", 40);
  Communicator first(self.id(), self.rank(), self.world(), self.config());
  self.meet();
  UniqueId second_id{};
  std::memcpy(second_id.bytes, self.board.blob[0], kUniqueIdBytes);
  self.step("join the second", 40);
  const auto second = std::make_unique<Communicator>(second_id, self.rank(), self.world(), self.config());
  if (contains(second->describe(), "each call is launched")) {
    std::printf("rank %d: the budget forbids a second resident worker: %s\n", self.rank(), second->describe().c_str());
    require(contains(second->describe(), "room for"), "launched for another reason");
  }
  self.step("the first held, calls on the second", 30);
  Call a(self, 1);
  Call b(self, 2);
  require_ok(first, first.hold(), "hold");
  require_ok(first, a.submit(first), "first");
  const std::uint64_t launches = first.stats().launches;
  for (int i = 0; i < 200; ++i) {
    require_ok(*second, b.submit(*second), "second");
    require_ok(first, a.submit(first), "first");
  }
  a.require_right();
  b.require_right();
  require(first.stats().launches == launches,
          "the first worker was relaunched although it was held: the two took turns");
  require_ok(first, first.release(), "release");
  if (self.rank() == 0) std::puts("two cooperative kernels of one context run together");
  self.step("leave");
  self.meet();
}
const RankProgram kTwo("two", run_two);
TEST(GpuResidency, TwoWorkersOfOneContextRunTogetherOrTheBudgetForbidsIt) { run("two"); }

// ---- park, hold, last_of_burst --------------------------------------------------------------------------------------

void run_park(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Config config = self.config();
  config.idle_park_us = 1'000'000;  // it leaves because it is told to
  config.lease_us = 5'000'000;
  Communicator comm(self.id(), self.rank(), self.world(), config);
  Call call(self, 1);
  std::vector<double> park_us;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    self.step("call, park, call");
    require_ok(comm, call.submit(comm));
    const Stopwatch watch;
    require_ok(comm, comm.park(), "park");
    park_us.push_back(watch.seconds() * 1e6);
    const Stopwatch drain;
    cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(drain.seconds() < 0.1, "after park() the device is still busy");
    const Stats stats = comm.stats();
    require(stats.parks.request == round && stats.launches == round,
            "round " + std::to_string(round) + ": " + std::to_string(stats.parks.request) + " parks by request and " +
                std::to_string(stats.launches) + " launches");
    self.meet();
  }
  call.require_right();
  std::sort(park_us.begin(), park_us.end());
  std::printf("rank %d: park() after a call: median %.1f us, longest %.1f us\n", self.rank(),
              park_us[park_us.size() / 2], park_us.back());
  require(park_us[park_us.size() / 2] <= 1000 * time_scale(), "park() takes more than 1 ms");
  self.step("leave");
}
const RankProgram kPark("park", run_park);
TEST(GpuResidency, ParkFreesTheGpuAndTheNextCallBringsTheWorkerBack) { run("park"); }

void run_hold(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  require(comm.release() == Status::kInvalidArgument && !comm.last_error().empty(),
          "release() without hold() is no error");
  Call call(self, 1);
  self.step("hold");
  require_ok(comm, comm.hold(), "hold");
  require_ok(comm, comm.hold(), "hold again");
  require_ok(comm, comm.nop(), "nop");
  const Stats before = comm.stats();
  for (int i = 0; i < 5; ++i) {
    sleep_s(0.02);  // two leases, 200 idle times
    require_ok(comm, call.submit(comm));
  }
  call.require_right();
  require_ok(comm, comm.release(), "release one of two");
  sleep_s(0.02);
  require_ok(comm, comm.nop(), "nop");
  const Stats held = comm.stats();
  require(held.launches == before.launches && all_parks(held) == all_parks(before), "a held worker has left");
  self.step("release");
  require_ok(comm, comm.release(), "release");
  const Stopwatch watch;
  cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  require(watch.seconds() < 0.1 * time_scale(),
          "after release() the worker stays " + std::to_string(watch.seconds()) + " s");
  require(all_parks(comm.stats()) == all_parks(before) + 1, "after release() the worker has not parked once");
  self.step("leave");
}
const RankProgram kHold("hold", run_hold);
TEST(GpuResidency, AHeldWorkerStaysAndLeavesAfterRelease) { run("hold"); }

void run_burst(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Config config = self.config();
  config.idle_park_us = 1'000'000;
  config.lease_us = 5'000'000;
  Communicator comm(self.id(), self.rank(), self.world(), config);
  Call call(self, 1);
  for (std::uint64_t round = 1; round <= 10; ++round) {
    self.step("a burst of five");
    for (int i = 0; i < 4; ++i) require_ok(comm, call.submit(comm));
    CallOptions last;
    last.last_of_burst = true;
    require_ok(comm, call.submit(comm, last));
    const Stopwatch watch;
    cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(watch.seconds() < 0.1 * time_scale(), "after the last of a burst the worker stays");
    const Stats stats = comm.stats();
    require(stats.parks.burst_end == round && stats.launches == round,
            "round " + std::to_string(round) + ": " + std::to_string(stats.parks.burst_end) +
                " parks at a burst's end, " + std::to_string(stats.launches) + " launches");
    self.meet();
  }
  call.require_right();
  self.step("leave");
}
const RankProgram kBurst("burst", run_burst);
TEST(GpuResidency, TheWorkerLeavesAfterTheLastOfABurst) { run("burst"); }

void run_scope(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  Call warm(self, 0);
  std::vector<std::unique_ptr<Call>> calls;
  for (std::uint64_t i = 1; i <= 3; ++i) calls.push_back(std::make_unique<Call>(self, i));
  require_ok(comm, warm.submit(comm));
  std::vector<Ticket> tickets;
  self.step("submit inside ParkedScope");
  {
    const ParkedScope parked(comm);
    require_ok(comm, parked.status(), "ParkedScope");
    { require_ok(comm, ParkedScope(comm).status(), "ParkedScope in ParkedScope"); }
    self.meet();
    const std::uint64_t launches = comm.stats().launches;
    for (const auto& call : calls) tickets.push_back(call->submit(comm));
    sleep_s(0.1);
    for (const Ticket& ticket : tickets)
      require(comm.test(ticket) == Status::kPending, "a call ran inside ParkedScope");
    require(comm.wait(tickets[0], 0.05) == Status::kAgain,
            "wait with a deadline does not answer kAgain inside ParkedScope");
    require(comm.stats().launches == launches, "the worker was launched inside ParkedScope");
    self.meet();
  }
  self.step("after ParkedScope");
  require_ok(comm, comm.wait_all(tickets), "wait_all");
  for (const auto& call : calls) call->require_right();
  self.step("leave");
}
const RankProgram kScope("scope", run_scope);
TEST(GpuResidency, CallsQueuedInsideParkedScopeRunAfterIt) { run("scope"); }

// ---- counters -------------------------------------------------------------------------------------------------------

void run_counters(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  Call call(self, 1);
  std::uint64_t made = 0;
  std::uint64_t data_calls[kProtocolCount] = {};
  self.step("calls of each protocol, pauses, parks");
  for (int round = 0; round < 30; ++round) {
    CallOptions options;
    options.protocol = static_cast<Protocol>(1 + round % 3);
    options.last_of_burst = round % 7 == 6;
    for (int i = 0; i < 50; ++i) {
      const Ticket ticket = call.submit(comm, options);
      if (ticket.status == Status::kUnsupported && options.protocol == Protocol::kLL128) break;
      require_ok(comm, ticket);
      ++made;
      ++data_calls[static_cast<int>(options.protocol)];
    }
    require_ok(comm, comm.nop(), "nop");
    ++made;
    if (round % 5 == 1) sleep_s(0.002);
    if (round % 5 == 3) require_ok(comm, comm.park(), "park");
  }
  require_ok(comm, comm.park(), "park");
  const Stats stats = comm.stats();
  require(stats.calls == made, std::to_string(made) + " calls made, " + std::to_string(stats.calls) + " counted");
  require(stats.launches == all_parks(stats), std::to_string(stats.launches) + " launches, " +
                                                  std::to_string(all_parks(stats)) +
                                                  " parks, and the worker is parked");
  require(stats.wait_ns > 0 && stats.parks.request > 0 && stats.parks.idle > 0, "a counter that must have moved is 0");
  for (int protocol = 1; protocol < kProtocolCount; ++protocol) {
    self.board.words[static_cast<std::size_t>(self.rank() * kProtocolCount + protocol)].store(
        stats.sent_bytes[static_cast<std::size_t>(protocol)]);
  }
  self.meet();
  for (int protocol = 1; protocol < kProtocolCount; ++protocol) {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < self.world(); ++rank) {
      sum += self.board.words[static_cast<std::size_t>(rank * kProtocolCount + protocol)].load();
    }
    const std::uint64_t expected = data_calls[protocol] * 2 * static_cast<std::uint64_t>(self.world() - 1) * kCount * 4;
    require(sum == expected, std::string(protocol_name(static_cast<Protocol>(protocol))) + ": " + std::to_string(sum) +
                                 " bytes sent by all ranks, not " + std::to_string(expected));
  }
  call.require_right();
  self.step("leave");
}
const RankProgram kCounters("counters", run_counters);
TEST(GpuResidency, CountersAddUp) { run("counters"); }

// ---- a GPU filled by somebody else ----------------------------------------------------------------------------------

__global__ void fill_the_gpu(std::uint64_t cycles) {
  extern __shared__ unsigned char whole_sm[];
  whole_sm[threadIdx.x] = 1;
  const long long start = clock64();
  while (static_cast<std::uint64_t>(clock64() - start) < cycles) {
  }
}

void run_full(RankSelf& self) {
  use_device(self);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  cudaDeviceProp properties{};
  cuda_ok(cudaGetDeviceProperties(&properties, self.device()), "cudaGetDeviceProperties");
  const auto shared = static_cast<int>(properties.sharedMemPerBlockOptin);
  cuda_ok(cudaFuncSetAttribute(fill_the_gpu, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "cudaFuncSetAttribute");
  Call call(self, 1);
  const Stream stream;
  require_ok(comm, call.submit(comm));
  require_ok(comm, comm.park(), "park");
  self.meet();
  self.step("a call while a long kernel fills the GPU");
  const auto blocks = static_cast<unsigned>(properties.multiProcessorCount);
  fill_the_gpu<<<blocks, 1024, static_cast<std::size_t>(shared), stream.get()>>>(600'000'000);  // some 0.3 s
  cuda_ok(cudaGetLastError(), "fill_the_gpu");
  const Stopwatch watch;
  require_ok(comm, call.submit(comm));
  std::printf("rank %d: a call behind a kernel that fills the GPU took %.1f ms\n", self.rank(), watch.seconds() * 1e3);
  stream.sync();
  call.require_right();
  self.step("leave");
}
const RankProgram kFull("full", run_full);
TEST(GpuResidency, ALaunchWaitsForAFilledGpuAndTheCallCompletes) { run("full"); }

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
