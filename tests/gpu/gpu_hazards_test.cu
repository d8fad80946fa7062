// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// CUDA calls that wait for an idle device, beside a resident worker, under default lazy loading: each returns within
// the lease + 5 ms, with the worker resident and idle and with a second thread that submits without pause on every
// rank. One table: call, parked, idle, under load (ms, the slowest of all repetitions and ranks). A call that hangs is
// killed after 10 s and named. Inside ParkedScope a device synchronisation costs what it costs on an idle device.
// ringbell-test: timeout=300
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr int kRepetitions = 5;
constexpr double kLimitMs = 10 + 5;  // the default lease, and what the call itself may take
constexpr double kWatchdogSeconds = 10;
constexpr std::uint64_t kLoadCount = 1024;
constexpr unsigned kInFlight = 4;

// Board words.
constexpr std::size_t kStopAt = 0;
constexpr std::size_t kSubmitted = 8;    // + rank
constexpr std::size_t kMeasured = 1000;  // + rank * kPerRank + state * kMostRows + row: nanoseconds
constexpr std::size_t kMostRows = 40;
constexpr std::size_t kPerRank = 4 * kMostRows;

// ---- kernels that nothing has loaded before the launch that is measured ---------------------------------------------

template <int kWhich>
__global__ void fresh_kernel(int* out) {
  *out = kWhich;
}
using Kernel = void (*)(int*);
template <int... kWhich>
constexpr std::array<Kernel, sizeof...(kWhich)> fresh_kernels(std::integer_sequence<int, kWhich...>) {
  return {fresh_kernel<kWhich>...};
}
constexpr auto kFresh = fresh_kernels(std::make_integer_sequence<int, 3 * kRepetitions + 1>{});

// What cuModuleLoadData takes; small enough to be compiled in well under a millisecond.
constexpr const char* kPtx = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n";

struct Driver {
  using ModuleLoadData = int (*)(void**, const void*);
  using ModuleUnload = int (*)(void*);
  ModuleLoadData load = nullptr;
  ModuleUnload unload = nullptr;
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    require(library != nullptr, "libcuda.so.1 cannot be opened");
    load = reinterpret_cast<ModuleLoadData>(dlsym(library, "cuModuleLoadData"));
    unload = reinterpret_cast<ModuleUnload>(dlsym(library, "cuModuleUnload"));
    require(load != nullptr && unload != nullptr, "libcuda.so.1 lacks cuModuleLoadData");
  }
};

// ---- the calls ------------------------------------------------------------------------------------------------------

/// One row: only `call` is timed.
struct Hazard {
  std::string name;
  std::function<void()> before;
  std::function<void()> call;
  std::function<void()> after;
};

void nothing() {}

class Hazards {
 public:
  explicit Hazards(RankSelf& self) : stream_(), device_(1 << 16), pinned_(1 << 16) {
    require(posix_memalign(&pages_, 4096, kPages) == 0, "no memory");
    std::memset(pages_, 1, kPages);
    add(
        "cudaMalloc 1 MB", nothing, [this] { cuda_ok(cudaMalloc(&pointer_, 1 << 20), "cudaMalloc"); },
        [this] { cuda_ok(cudaFree(pointer_), "cudaFree"); });
    add(
        "cudaFree 1 MB", [this] { cuda_ok(cudaMalloc(&pointer_, 1 << 20), "cudaMalloc"); },
        [this] { cuda_ok(cudaFree(pointer_), "cudaFree"); }, nothing);
    add(
        "cudaHostAlloc 1 MB", nothing, [this] { cuda_ok(cudaHostAlloc(&pointer_, 1 << 20, 0), "cudaHostAlloc"); },
        [this] { cuda_ok(cudaFreeHost(pointer_), "cudaFreeHost"); });
    add(
        "cudaFreeHost 1 MB", [this] { cuda_ok(cudaHostAlloc(&pointer_, 1 << 20, 0), "cudaHostAlloc"); },
        [this] { cuda_ok(cudaFreeHost(pointer_), "cudaFreeHost"); }, nothing);
    add(
        "cudaHostRegister 1 MB", nothing, [this] { cuda_ok(cudaHostRegister(pages_, kPages, 0), "cudaHostRegister"); },
        [this] { cuda_ok(cudaHostUnregister(pages_), "cudaHostUnregister"); });
    add(
        "cudaHostUnregister 1 MB", [this] { cuda_ok(cudaHostRegister(pages_, kPages, 0), "cudaHostRegister"); },
        [this] { cuda_ok(cudaHostUnregister(pages_), "cudaHostUnregister"); }, nothing);
    add(
        "cudaDeviceSynchronize", nothing, [] { cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }, nothing);
    add(
        "first launch of a kernel + stream sync", nothing, [this] { launch_fresh(); }, nothing);
    add(
        "legacy default-stream copy, both ways", nothing, [this] { copy_by_default_stream(); }, nothing);
    add(
        "stream create + destroy", nothing, [] { make_stream(); }, nothing);
    add(
        "event create + record + destroy", nothing, [this] { make_event(); }, nothing);
    add(
        "graph create + launch + destroy", nothing, [this] { make_graph(); }, nothing);
    try {
      load_module();  // the compiler of PTX is itself loaded by the first use
      add(
          "cuModuleLoadData + unload", nothing, [this] { load_module(); }, nothing);
    } catch (const std::exception& error) {
      std::printf("left out: %s\n", error.what());
    }
    if (self.world() == 1) return;  // a process cannot open its own handle
    cudaIpcMemHandle_t handle{};
    cuda_ok(cudaIpcGetMemHandle(&handle, device_.get()), "cudaIpcGetMemHandle");
    std::memcpy(self.board.blob[self.rank()], &handle, sizeof handle);
    self.meet();
    std::memcpy(&peer_, self.board.blob[(self.rank() + 1) % self.world()], sizeof peer_);
    add(
        "cudaIpcOpenMemHandle", nothing, [this] { open_peer(); },
        [this] { cuda_ok(cudaIpcCloseMemHandle(pointer_), "close"); });
    add(
        "cudaIpcCloseMemHandle", [this] { open_peer(); },
        [this] { cuda_ok(cudaIpcCloseMemHandle(pointer_), "cudaIpcCloseMemHandle"); }, nothing);
  }
  ~Hazards() { std::free(pages_); }
  Hazards(const Hazards&) = delete;
  Hazards& operator=(const Hazards&) = delete;

  [[nodiscard]] const std::vector<Hazard>& rows() const { return rows_; }

 private:
  static constexpr std::size_t kPages = 1 << 20;

  void add(const char* name, std::function<void()> before, std::function<void()> call, std::function<void()> after) {
    rows_.push_back({name, std::move(before), std::move(call), std::move(after)});
  }
  void launch_fresh() {
    require(next_fresh_ < kFresh.size(), "all fresh kernels are used up");
    const auto which = static_cast<int>(next_fresh_);
    kFresh[next_fresh_++]<<<1, 1, 0, stream_.get()>>>(reinterpret_cast<int*>(device_.get()));
    cuda_ok(cudaGetLastError(), "launch of a fresh kernel");
    stream_.sync();
    int seen = -1;
    stream_.copy(&seen, device_.get(), sizeof seen);
    require(seen == which, "a fresh kernel did not run");
  }
  void copy_by_default_stream() {
    cuda_ok(cudaMemcpy(pinned_.get(), device_.get(), 4096, cudaMemcpyDeviceToHost), "cudaMemcpy D2H");
    cuda_ok(cudaMemcpy(device_.get(), pinned_.get(), 4096, cudaMemcpyHostToDevice), "cudaMemcpy H2D");
  }
  static void make_stream() {
    cudaStream_t stream = nullptr;
    cuda_ok(cudaStreamCreate(&stream), "cudaStreamCreate");
    cuda_ok(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  void make_event() {
    cudaEvent_t event = nullptr;
    cuda_ok(cudaEventCreate(&event), "cudaEventCreate");
    cuda_ok(cudaEventRecord(event, stream_.get()), "cudaEventRecord");
    cuda_ok(cudaEventSynchronize(event), "cudaEventSynchronize");
    cuda_ok(cudaEventDestroy(event), "cudaEventDestroy");
  }
  void make_graph() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaGraphNode_t node = nullptr;
    cudaMemsetParams params{};
    params.dst = device_.get();
    params.elementSize = 1;
    params.width = 256;
    params.height = 1;
    cuda_ok(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    cuda_ok(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &params), "cudaGraphAddMemsetNode");
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cuda_ok(cudaGraphLaunch(exec, stream_.get()), "cudaGraphLaunch");
    stream_.sync();
    cuda_ok(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    cuda_ok(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  void load_module() {
    void* module = nullptr;
    const int loaded = driver_.load(&module, kPtx);
    require(loaded == 0, "cuModuleLoadData: CUresult " + std::to_string(loaded));
    const int unloaded = driver_.unload(module);
    require(unloaded == 0, "cuModuleUnload: CUresult " + std::to_string(unloaded));
  }
  void open_peer() {
    cuda_ok(cudaIpcOpenMemHandle(&pointer_, peer_, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  }

  std::vector<Hazard> rows_;
  Driver driver_;
  Stream stream_;
  DeviceArray<unsigned char> device_;
  PinnedArray<unsigned char> pinned_;
  void* pages_ = nullptr;
  void* pointer_ = nullptr;
  cudaIpcMemHandle_t peer_{};
  std::size_t next_fresh_ = 0;
};

// ---- load -----------------------------------------------------------------------------------------------------------

/// A second thread that submits without pause; the ranks agree where it ends, so that all make the same calls.
class Load {
 public:
  Load(RankSelf& self, Communicator& comm) : self_(self), comm_(comm), in_(kLoadCount), out_(kLoadCount) {
    cuda_ok(cudaMemset(in_.get(), 0, kLoadCount * sizeof(float)), "cudaMemset");
    cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    self.meet();
    thread_ = std::thread([this] { run(); });
  }
  ~Load() {  // after stop(), or because a measurement failed: then nothing may wait for the peers
    if (!thread_.joinable()) return;
    comm_.abort();
    quit_.store(true);
    thread_.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  /// All ranks call it. @return calls made
  std::uint64_t stop() {
    self_.meet();
    if (self_.rank() == 0) {
      std::uint64_t most = 0;
      for (int rank = 0; rank < self_.world(); ++rank) most = std::max(most, submitted(rank).load());
      self_.board.words[kStopAt].store(most + 256);  // no rank can be this far ahead of what it has said
    }
    thread_.join();
    require(failure_.empty(), failure_);
    return calls_;
  }

 private:
  std::atomic<std::uint64_t>& submitted(int rank) {
    return self_.board.words[kSubmitted + static_cast<std::size_t>(rank)];
  }

  void run() {
    std::deque<Ticket> flying;
    const auto wait_oldest = [&] {
      const Status status = comm_.wait(flying.front());
      if (status != Status::kOk) failure_ = std::string("load: ") + status_name(status) + ": " + comm_.last_error();
      flying.pop_front();
    };
    while (failure_.empty() && !quit_.load()) {
      const std::uint64_t end = self_.board.words[kStopAt].load();
      if (end != 0 && calls_ >= end) break;
      submitted(self_.rank()).store(calls_ + 1);
      flying.push_back(comm_.all_reduce(in_.get(), out_.get(), kLoadCount, DType::kFloat32));
      ++calls_;
      if (flying.size() >= kInFlight) wait_oldest();
    }
    while (!flying.empty() && failure_.empty()) wait_oldest();
  }

  RankSelf& self_;
  Communicator& comm_;
  DeviceArray<float> in_;
  DeviceArray<float> out_;
  std::atomic<bool> quit_{false};
  std::string failure_;  // the thread's until it is joined
  std::uint64_t calls_ = 0;
  std::thread thread_;
};

// ---- measuring ------------------------------------------------------------------------------------------------------

enum State : std::size_t { kParked, kIdle, kLoaded };
constexpr const char* kStateNames[] = {"parked", "idle", "under load"};

double call_ms(const Hazard& hazard) {
  const Stopwatch watch;
  hazard.call();
  return watch.seconds() * 1e3;
}

std::atomic<std::uint64_t>& measured(RankSelf& self, int rank, std::size_t state, std::size_t row) {
  return self.board.words[kMeasured + static_cast<std::size_t>(rank) * kPerRank + state * kMostRows + row];
}

void measure(RankSelf& self, Communicator& comm, const Hazards& hazards, State state) {
  for (std::size_t row = 0; row < hazards.rows().size(); ++row) {
    const Hazard& hazard = hazards.rows()[row];
    self.step(hazard.name + ", " + kStateNames[state], kWatchdogSeconds);
    double worst = 0;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
      hazard.before();
      if (state == kParked) {
        const ParkedScope parked(comm);
        require_ok(comm, parked.status(), "ParkedScope");
        worst = std::max(worst, call_ms(hazard));
      } else {
        // Idle: the empty command has brought the worker, which now polls.
        if (state == kIdle) require_ok(comm, comm.nop(), "nop");
        worst = std::max(worst, call_ms(hazard));
      }
      hazard.after();
    }
    measured(self, self.rank(), state, row).store(static_cast<std::uint64_t>(worst * 1e6));
  }
}

void print_and_judge(RankSelf& self, const Hazards& hazards) {
  std::printf("%-40s %10s %10s %14s   limit %.0f ms\n", "call (ms, slowest)", "parked", "idle", "under load", kLimitMs);
  std::string late;
  for (std::size_t row = 0; row < hazards.rows().size(); ++row) {
    double worst[3] = {0, 0, 0};
    for (std::size_t state = 0; state < 3; ++state) {
      for (int rank = 0; rank < self.world(); ++rank) {
        worst[state] = std::max(worst[state], static_cast<double>(measured(self, rank, state, row).load()) / 1e6);
      }
      if (state != kParked && worst[state] > kLimitMs * time_scale())
        late += "\n  " + hazards.rows()[row].name + ", " + kStateNames[state];
    }
    std::printf("%-40s %10.3f %10.3f %14.3f\n", hazards.rows()[row].name.c_str(), worst[0], worst[1], worst[2]);
  }
  std::fflush(stdout);
  require(late.empty(), "later than lease + 5 ms:" + late);
}

void run_hazards(RankSelf& self) {
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  require(loading == nullptr, "CUDA_MODULE_LOADING is set: this test is about the default, lazy loading");
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  Hazards hazards(self);
  require(hazards.rows().size() <= kMostRows, "no room on the board for so many rows");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  if (self.rank() == 0) std::printf("%s\n", comm.describe().c_str());
  measure(self, comm, hazards, kParked);
  self.meet();
  measure(self, comm, hazards, kIdle);
  self.meet();
  std::uint64_t calls = 0;
  {
    Load load(self, comm);
    sleep_s(0.02);
    measure(self, comm, hazards, kLoaded);
    self.step("end of load");
    calls = load.stop();
  }
  const Stats stats = comm.stats();
  std::printf("rank %d: %llu calls, %llu launches; parks: %llu idle, %llu lease, %llu peer's lease\n", self.rank(),
              static_cast<unsigned long long>(calls), static_cast<unsigned long long>(stats.launches),
              static_cast<unsigned long long>(stats.parks.idle), static_cast<unsigned long long>(stats.parks.lease),
              static_cast<unsigned long long>(stats.parks.peer_lease));
  std::fflush(stdout);
  require(calls >= 2000, "there was no load: only " + std::to_string(calls) + " calls");
  require(stats.parks.lease + stats.parks.peer_lease > 0, "under load no lease ever ended");
  self.meet();
  if (self.rank() == 0) print_and_judge(self, hazards);
  self.step("leave");
}
const RankProgram kHazards("hazards", run_hazards);

TEST(GpuHazards, EveryCallReturnsWithinTheLeaseIdleAndUnderLoad) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  options.limit_s = 150;
  run_group("hazards", options);
}

// ---- ParkedScope ----------------------------------------------------------------------------------------------------

double synchronize_us() {
  constexpr int kCalls = 301;
  std::vector<double> us;
  for (int i = 0; i < kCalls; ++i) {
    const Stopwatch watch;
    cuda_ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    us.push_back(watch.seconds() * 1e6);
  }
  std::nth_element(us.begin(), us.begin() + kCalls / 2, us.end());
  return us[kCalls / 2];
}

void run_parked(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const DeviceArray<float> in(kLoadCount);
  const DeviceArray<float> out(kLoadCount);
  cuda_ok(cudaMemset(in.get(), 0, kLoadCount * sizeof(float)), "cudaMemset");
  (void)synchronize_us();
  self.meet();
  const double idle_us = synchronize_us();
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  for (int round = 0; round < 3; ++round) {
    self.step("calls, then ParkedScope");
    for (int call = 0; call < 100; ++call) {
      require_ok(comm, comm.all_reduce(in.get(), out.get(), kLoadCount, DType::kFloat32));
    }
    const ParkedScope parked(comm);
    require_ok(comm, parked.status(), "ParkedScope");
    self.meet();
    const double parked_us = synchronize_us();
    std::printf("rank %d: cudaDeviceSynchronize: idle device %.2f us, inside ParkedScope %.2f us\n", self.rank(),
                idle_us, parked_us);
    std::fflush(stdout);
    require(parked_us <= idle_us + 20 * time_scale(), "inside ParkedScope cudaDeviceSynchronize takes " +
                                                          std::to_string(parked_us) + " us, on an idle device " +
                                                          std::to_string(idle_us) + " us");
    self.meet();
  }
  self.step("leave");
}
const RankProgram kParkedProgram("parked", run_parked);

TEST(GpuHazards, InsideParkedScopeADeviceSynchronizationCostsWhatItCostsOnAnIdleDevice) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  run_group("parked", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
