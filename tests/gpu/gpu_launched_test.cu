// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Launched calls on CUDA streams: against the reference; captured and replayed 10,000 times (RINGBELL_TEST_CALLS
// changes that) with eager, resident and cold calls in between; two streams, two threads, many streams; replays in
// different orders, at once, and after the communicator has gone; streams that are refused.
// ringbell-test: timeout=400
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

void run(const char* program, int world, const std::string& argument = "", std::vector<std::string> environment = {}) {
  GroupOptions options;
  options.world = world;
  options.devices = gpu_count();
  options.argument = argument;
  options.environment = std::move(environment);
  options.limit_s = 200;
  run_group(program, options);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

__host__ __device__ inline std::uint32_t value(std::uint32_t rank, std::uint32_t call, std::uint32_t i) {
  return (i * 0x9e3779b1U + call * 0x85ebca6bU + 1) * (rank + 1);
}
__host__ __device__ inline std::uint32_t sum_of_ranks(std::uint32_t world, std::uint32_t call, std::uint32_t i) {
  return value(0, call, i) * (world * (world + 1) / 2);
}
// The call's number lies in memory that a kernel counts up, so that a captured producer writes new values.
__global__ void write_values(std::uint32_t* to, std::uint32_t rank, const std::uint32_t* call, std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = value(rank, *call, i);
}
__global__ void check_values(unsigned long long* wrong, const std::uint32_t* from, std::uint32_t world,
                             const std::uint32_t* call, std::uint32_t count) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    if (from[i] != sum_of_ranks(world, *call, i)) atomicAdd(wrong, 1ULL);
}
__global__ void count_up(std::uint32_t* call) { ++*call; }
/// Producer, call, consumer of one size, all on one stream.
class Link {
 public:
  Link(RankSelf& self, std::uint32_t count) : self_(self), count_(count), in_(count), out_(count), call_(1), wrong_(1) {
    cuda_ok(cudaMemset(call_.get(), 0, sizeof(std::uint32_t)), "cudaMemset");
    cuda_ok(cudaMemset(wrong_.get(), 0, sizeof(unsigned long long)), "cudaMemset");
    cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  void put(Communicator& comm, cudaStream_t stream) {
    const auto rank = static_cast<std::uint32_t>(self_.rank());
    const auto world = static_cast<std::uint32_t>(self_.world());
    count_up<<<1, 1, 0, stream>>>(call_.get());
    write_values<<<4, 128, 0, stream>>>(in_.get(), rank, call_.get(), count_);
    require_ok(comm, comm.all_reduce_on(stream, in_.get(), out_.get(), count_, DType::kUInt32), "all_reduce_on");
    check_values<<<4, 128, 0, stream>>>(wrong_.get(), out_.get(), world, call_.get(), count_);
    cuda_ok(cudaGetLastError(), "kernels");
  }
  void require_right(const Stream& stream, std::uint32_t calls) const {
    unsigned long long wrong = 1;
    std::uint32_t made = 0;
    stream.copy(&wrong, wrong_.get(), sizeof wrong);
    stream.copy(&made, call_.get(), sizeof made);
    require(wrong == 0, std::to_string(wrong) + " wrong elements in calls of " + std::to_string(count_));
    require(made == calls, std::to_string(made) + " calls ran, not " + std::to_string(calls));
  }

 private:
  RankSelf& self_;
  std::uint32_t count_;
  DeviceArray<std::uint32_t> in_;
  DeviceArray<std::uint32_t> out_;
  DeviceArray<std::uint32_t> call_;
  DeviceArray<unsigned long long> wrong_;
};

class Graph {
 public:
  explicit Graph(cudaGraph_t graph) : graph_(graph) {
    cuda_ok(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() {
    if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
    (void)cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { cuda_ok(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t executable_ = nullptr;
};

std::unique_ptr<Graph> capture(cudaStream_t stream, cudaStreamCaptureMode mode, const std::function<void()>& body) {
  cuda_ok(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
  body();
  cudaGraph_t graph = nullptr;
  cuda_ok(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return std::make_unique<Graph>(graph);
}

// ---- against the reference ------------------------------------------------------------------------------------------

void run_reference(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  std::vector<AllReduceCase> cases;
  std::size_t turn = 0;
  for (AllReduceCase c : pairwise_rows()) {
    c.protocol = kProtocols[++turn % 3];
    c.count = turn % 13 == 0 ? 0 : turn * 131 % 4000;
    cases.push_back(c);
  }
  self.step("join", 40);
  Config config = self.config();
  config.slot_bytes = 1920;
  Communicator comm(self.id(), self.rank(), self.world(), config);
  if (contains(comm.describe(), "LL128 not permitted")) {
    for (AllReduceCase& c : cases) c.protocol = c.protocol == Protocol::kLL128 ? Protocol::kLL : c.protocol;
  }
  DeviceBuffer in(40000);
  DeviceBuffer out(40000);
  Stream stream;
  self.step("cases", 90);
  const SuiteResult result = run_cases(
      comm, cases, 3, plan_basis(self.world(), DeviceKind::kCuda, 1920), in, out,
      [&](Communicator& c, const void* from, void* to, const AllReduceCase& which, const CallOptions& options) {
        const Status status = c.all_reduce_on(stream.get(), from, to, which.count, which.dtype, which.op, options);
        return status == Status::kOk ? c.check(stream.get()) : status;
      });
  require(result.failure.empty(), result.failure);
  self.step("leave");
  self.meet();
}
const RankProgram kReference("reference", run_reference);
TEST(GpuLaunched, HasTheBitsOfTheReference) { run("reference", side_by_side_world()); }

// ---- graphs ---------------------------------------------------------------------------------------------------------

/// This test's own allocations and copies beside another thread's capture in global mode, which they would invalidate.
/// The library is called outside of it: its calls must see to that themselves.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  ~Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void exchange() { cuda_ok(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode"); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void run_graphs(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const auto replays =
      static_cast<std::uint32_t>(number_from_env("RINGBELL_TEST_CALLS", 10'000) / (side_by_side() ? 1 : 50));
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  Stream stream;
  Link links[3] = {{self, 2}, {self, 2048}, {self, 40000}};
  Link eager(self, 1000);
  // Cold submits from a second thread the whole time, while this one captures in global mode.
  std::atomic<bool> stop{false};
  std::string cold_failure;
  constexpr std::size_t kStopAt = 0;
  std::thread cold([&] {
    try {
      cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
      std::optional<Relaxed> relaxed(std::in_place);
      const Stream own;
      DeviceArray<std::uint32_t> data(64);
      std::vector<std::uint32_t> values(64);
      // Both ranks make as many calls: rank 0 says after how many to stop.
      for (std::uint32_t call = 1;; ++call) {
        if (self.rank() == 0 && stop && self.board.words[kStopAt] == 0) self.board.words[kStopAt] = call + 20;
        if (self.board.words[kStopAt] != 0 && call >= self.board.words[kStopAt]) return;
        std::fill(values.begin(), values.end(), call * (static_cast<std::uint32_t>(self.rank()) + 1));
        own.copy(data.get(), values.data(), 256);
        relaxed.reset();
        require_ok(comm, comm.all_reduce(data.get(), data.get(), 64, DType::kUInt32), "a cold call");
        relaxed.emplace();
        own.copy(values.data(), data.get(), 256);
        const auto world = static_cast<std::uint32_t>(self.world());
        for (const std::uint32_t seen : values)
          require(seen == call * (world * (world + 1) / 2), "a cold call is wrong");
        sleep_s(0.0005);  // the worker has left
      }
    } catch (const std::exception& error) {
      cold_failure = error.what();
    }
  });
  try {
    self.step("capture in global mode beside cold submits", 60);
    std::unique_ptr<Graph> graph;
    for (int round = 0; round < 20; ++round) {
      graph = capture(stream.get(), cudaStreamCaptureModeGlobal, [&] {
        for (Link& link : links) link.put(comm, stream.get());
      });
    }
    self.step("replays", 150);
    std::uint32_t eager_calls = 0;
    for (std::uint32_t replay = 0; replay < replays; ++replay) {
      graph->launch(stream.get());
      if (replay % 7 == 0) {
        eager.put(comm, stream.get());
        ++eager_calls;
      }
      if (replay % 64 == 63) stream.sync();
    }
    require_ok(comm, comm.check(stream.get()), "check");
    for (const Link& link : links) link.require_right(stream, replays);
    eager.require_right(stream, eager_calls);
  } catch (...) {
    stop = true;
    comm.abort();
    cold.join();
    throw;
  }
  stop = true;
  cold.join();
  require(cold_failure.empty(), cold_failure);
  if (self.rank() == 0) {
    std::printf("%u replays of 3 calls, %llu launches of the worker, stream calls made %llu\n", replays,
                static_cast<unsigned long long>(comm.stats().launches),
                static_cast<unsigned long long>(comm.stats().stream_calls));
  }
  self.step("leave");
  self.meet();
}
const RankProgram kGraphs("graphs", run_graphs);
TEST(CaseC18, CapturedCallsAreRightOnEveryReplayBesideEagerResidentAndColdOnes) { run("graphs", side_by_side_world()); }

// ---- streams --------------------------------------------------------------------------------------------------------

/// Calls in turn on many streams, eager and in one capture that forks; each reads what the one before wrote.
void run_streams(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const auto count = static_cast<std::size_t>(std::stoul(self.argument()));
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(std::make_unique<Stream>());
  DeviceArray<std::uint64_t> data(512);
  std::vector<std::uint64_t> values(512, 1);
  const auto world = static_cast<std::uint64_t>(self.world());
  const auto expect = [&](std::uint64_t expected, const Stream& last) {
    require_ok(comm, comm.check(last.get()), "check");
    last.copy(values.data(), data.get(), 4096);
    for (const std::uint64_t seen : values) {
      require(seen == expected, std::to_string(seen) + " instead of " + std::to_string(expected));
    }
  };
  self.step("eager calls on streams in turn", 60);
  for (int round = 0; round < 20; ++round) {
    std::fill(values.begin(), values.end(), 1);
    streams[0]->copy(data.get(), values.data(), 4096);
    std::uint64_t expected = 1;
    for (std::size_t call = 0; call < 2 * count; ++call) {
      const Stream& stream = *streams[call % count];
      require_ok(comm, comm.all_reduce_on(stream.get(), data.get(), data.get(), 512, DType::kUInt64), "all_reduce_on");
      expected *= world;
    }
    expect(expected, *streams[(2 * count - 1) % count]);
  }
  self.step("one capture over two streams", 60);
  if (count >= 2) {
    cudaEvent_t fork = nullptr;
    cudaEvent_t join = nullptr;
    cuda_ok(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    cuda_ok(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    cudaStream_t first = streams[0]->get();
    cudaStream_t second = streams[1]->get();
    const auto graph = capture(first, cudaStreamCaptureModeThreadLocal, [&] {
      cuda_ok(cudaEventRecord(fork, first), "cudaEventRecord");
      cuda_ok(cudaStreamWaitEvent(second, fork, 0), "cudaStreamWaitEvent");
      for (int call = 0; call < 6; ++call) {
        require_ok(comm,
                   comm.all_reduce_on(call % 2 == 0 ? first : second, data.get(), data.get(), 512, DType::kUInt64),
                   "all_reduce_on in a capture");
      }
      cuda_ok(cudaEventRecord(join, second), "cudaEventRecord");
      cuda_ok(cudaStreamWaitEvent(first, join, 0), "cudaStreamWaitEvent");
    });
    for (int round = 0; round < 50; ++round) {
      std::fill(values.begin(), values.end(), 3);
      streams[0]->copy(data.get(), values.data(), 4096);
      graph->launch(first);
      std::uint64_t expected = 3;
      for (int call = 0; call < 6; ++call) expected *= world;
      expect(expected, *streams[0]);
    }
    cuda_ok(cudaEventDestroy(fork), "cudaEventDestroy");
    cuda_ok(cudaEventDestroy(join), "cudaEventDestroy");
  }
  self.step("leave");
  self.meet();
}
const RankProgram kStreams("streams", run_streams);
TEST(CaseC14, CallsOnTwoStreamsRunInTheOrderInWhichTheyWereMade) { run("streams", side_by_side_world(), "2"); }
TEST(CaseC14, CallsOnFortyStreamsRunInTheOrderInWhichTheyWereMade) { run("streams", side_by_side_world(), "40"); }
TEST(CaseC14, OneConnectionToTheDeviceIsEnough) {
  run("streams", side_by_side_world(), "40", {"CUDA_DEVICE_MAX_CONNECTIONS=1"});
}

// ---- what must be an error ------------------------------------------------------------------------------------------

bool all_ones(const Stream& stream, const DeviceArray<std::uint32_t>& data) {
  std::vector<std::uint32_t> values(data.size());
  stream.copy(values.data(), data.get(), values.size() * 4);
  return std::all_of(values.begin(), values.end(), [](std::uint32_t seen) { return seen == ~0u; });
}

void run_orders(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  Stream stream;
  DeviceArray<std::uint32_t> in(100);
  DeviceArray<std::uint32_t> out(100);
  std::unique_ptr<Graph> graphs[2];
  for (auto& graph : graphs) {
    graph = capture(stream.get(), cudaStreamCaptureModeThreadLocal, [&] {
      require_ok(comm, comm.all_reduce_on(stream.get(), in.get(), out.get(), 100, DType::kUInt32), "all_reduce_on");
    });
  }
  self.step("replays in different orders");
  graphs[self.rank() % 2]->launch(stream.get());
  graphs[1 - self.rank() % 2]->launch(stream.get());
  const Status status = comm.check(stream.get());
  std::printf("rank %d: %s\n", self.rank(), comm.last_error().c_str());
  require(status == Status::kMismatch, std::string("status ") + status_name(status));
  require(contains(comm.last_error(), "launched call 0") && contains(comm.last_error(), "launched call 1"),
          comm.last_error());
  require(all_ones(stream, out), "something like a result is left");
}
const RankProgram kOrders("orders", run_orders);
TEST(GpuLaunched, GraphsReplayedInDifferentOrdersGiveMismatchNamingBothCalls) {
  if (side_by_side_world() < 2) GTEST_SKIP() << "two ranks that run side by side are needed";
  run("orders", 2);
}

void run_overlap(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  Stream streams[2];
  DeviceArray<std::uint32_t> in(100);
  DeviceArray<std::uint32_t> first(100);
  DeviceArray<std::uint32_t> second(100);
  cuda_ok(cudaMemset(in.get(), 0, 400), "cudaMemset");
  cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  std::unique_ptr<Graph> graphs[2];
  for (int i = 0; i < 2; ++i) {
    graphs[i] = capture(streams[i].get(), cudaStreamCaptureModeThreadLocal, [&] {
      require_ok(
          comm,
          comm.all_reduce_on(streams[i].get(), in.get(), i == 0 ? first.get() : second.get(), 100, DType::kUInt32),
          "all_reduce_on");
    });
  }
  self.step("two replays at once");
  if (self.rank() == 0) {
    graphs[0]->launch(streams[0].get());
    sleep_s(0.02);
    graphs[1]->launch(streams[1].get());
    sleep_s(0.05);
    self.meet();
  } else {
    self.meet();
    graphs[0]->launch(streams[0].get());
    streams[0].sync();
    graphs[1]->launch(streams[1].get());
  }
  streams[1].sync();
  const Status status = comm.check(streams[0].get());
  std::printf("rank %d: %s\n", self.rank(), comm.last_error().c_str());
  require(status == Status::kInvalidArgument, std::string("status ") + status_name(status));
  require(contains(comm.last_error(), "on rank 0 two launched calls"), comm.last_error());
  require(self.rank() != 0 || !all_ones(streams[0], first), "the call that ran first has failed where it overlapped");
  require(all_ones(streams[1], second), "the call that was refused left something like a result");
}
const RankProgram kOverlap("overlap", run_overlap);
TEST(CaseC14, TwoGraphsReplayedAtOnceAreAnErrorAtOnceAndNeverMixed) {
  if (side_by_side_world() < 2) GTEST_SKIP() << "two ranks that run side by side are needed";
  run("overlap", 2);
}

void run_gone(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  Stream stream;
  DeviceArray<std::uint32_t> in(100);
  DeviceArray<std::uint32_t> out(100);
  cuda_ok(cudaMemset(in.get(), 0, 400), "cudaMemset");
  std::unique_ptr<Graph> graph;
  {
    self.step("join", 40);
    Communicator comm(self.id(), self.rank(), self.world(), self.config());
    graph = capture(stream.get(), cudaStreamCaptureModeThreadLocal, [&] {
      require_ok(comm, comm.all_reduce_on(stream.get(), in.get(), out.get(), 100, DType::kUInt32), "all_reduce_on");
    });
    graph->launch(stream.get());
    require_ok(comm, comm.check(stream.get()), "check");
    require(!all_ones(stream, out), "the replay has failed");
    self.step("leave");
  }
  self.meet();
  self.step("replay without a communicator");
  graph->launch(stream.get());
  stream.sync();
  require(all_ones(stream, out), "a replay after the communicator has gone left something like a result");
}
const RankProgram kGone("gone", run_gone);
TEST(GpuLaunched, AReplayAfterTheCommunicatorHasGoneFillsItsOutput) { run("gone", side_by_side_world()); }

void run_refused_streams(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  DeviceArray<std::uint32_t> data(8);
  Stream stream;
  const auto refused = [&](const char* what, Status status, const char* words) {
    std::printf("%-40s %s\n", what, comm.last_error().c_str());
    require(status == Status::kInvalidArgument, std::string(what) + ": " + status_name(status));
    require(contains(comm.last_error(), words), std::string(what) + ": " + comm.last_error());
  };
  CallOptions after;
  after.after = ringbell::Stream{stream.get()};
  cuda_ok(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  refused("after a stream under capture",
          comm.all_reduce(data.get(), data.get(), 8, DType::kUInt32, ReduceOp::kSum, after).status, "all_reduce_on");
  refused("check of a stream under capture", comm.check(stream.get()), "capture");
  cudaGraph_t graph = nullptr;
  cuda_ok(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cuda_ok(cudaGraphDestroy(graph), "cudaGraphDestroy");
  if (gpu_count() > 1) {
    const int other = (self.device() + 1) % gpu_count();
    cuda_ok(cudaSetDevice(other), "cudaSetDevice");
    {
      Stream foreign;
      refused("a stream of another device",
              comm.all_reduce_on(foreign.get(), data.get(), data.get(), 8, DType::kUInt32), "device");
      refused("the default stream of another device",
              comm.all_reduce_on(nullptr, data.get(), data.get(), 8, DType::kUInt32), "device");
    }
    cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  }
  require_ok(comm, comm.all_reduce_on(nullptr, data.get(), data.get(), 8, DType::kUInt32), "the legacy stream");
  require_ok(comm, comm.check(nullptr), "check of the legacy stream");
}
const RankProgram kRefusedStreams("refused streams", run_refused_streams);
TEST(GpuLaunched, StreamsThatCannotBeAreNamed) { run("refused streams", 1); }

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
