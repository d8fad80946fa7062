// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a GPU rank refuses, and that it goes on afterwards: host pointers, ranges that leave their allocation, freed
// memory, unknown types; places where residency is refused; two ranks on one GPU without leave; ranks that disagree.
// Pinned and managed memory: accepted and right, or an argument error.
// ringbell-test: timeout=240
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

constexpr std::size_t kBytes = 1 << 16;
constexpr std::uint64_t kCount = kBytes / sizeof(std::uint32_t);

void run(const char* program, GroupOptions options) {
  options.devices = gpu_count();
  run_group(program, options);
}
GroupOptions world_of(int world) {
  GroupOptions options;
  options.world = world;
  return options;
}

// ---- arguments: a world of 1 is enough ------------------------------------------------------------------------------

/// A good pair of buffers, and a look whether the communicator still works.
class Good {
 public:
  explicit Good(Communicator& comm) : comm_(comm), in_(kCount), out_(kCount), sent_(kCount) {}
  void* in() const { return in_.get(); }
  void* out() const { return out_.get(); }
  void require_works() {
    for (std::uint32_t& value : sent_) value = ++next_ * 2654435761U;
    stream_.copy(in_.get(), sent_.data(), kBytes);
    require_ok(comm_, comm_.all_reduce(in_.get(), out_.get(), kCount, DType::kUInt32), "a good call after a bad one");
    std::vector<std::uint32_t> got(kCount);
    stream_.copy(got.data(), out_.get(), kBytes);
    require(got == sent_, "a good call after a bad one gives wrong data");
  }

 private:
  Communicator& comm_;
  DeviceArray<std::uint32_t> in_;
  DeviceArray<std::uint32_t> out_;
  std::vector<std::uint32_t> sent_;
  std::uint32_t next_ = 0;
  Stream stream_;
};

void require_refused(Communicator& comm, const std::string& what, const void* in, void* out, std::uint64_t count,
                     DType dtype = DType::kUInt32, ReduceOp op = ReduceOp::kSum) {
  const Ticket ticket = comm.all_reduce(in, out, count, dtype, op);
  const Status status = ticket.status == Status::kOk ? comm.wait(ticket) : ticket.status;
  require(ticket.status == Status::kInvalidArgument,
          what + ": submit answers " + status_name(ticket.status) + ", the call " + status_name(status));
  require(comm.wait(ticket) == Status::kInvalidArgument, what + ": wait answers something else than submit");
  require(!comm.last_error().empty(), what + ": no text");
  std::printf("%-45s %s\n", what.c_str(), comm.last_error().c_str());
}

void run_arguments(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), 0, 1, self.config());
  Good good(comm);
  self.step("bad arguments");
  std::vector<std::uint32_t> pageable(kCount);
  std::uint32_t on_stack[4] = {};
  require_refused(comm, "pageable host memory as in", pageable.data(), good.out(), kCount);
  require_refused(comm, "pageable host memory as out", good.in(), pageable.data(), kCount);
  require_refused(comm, "the stack", on_stack, good.out(), 4);
  require_refused(comm, "null in", nullptr, good.out(), kCount);
  require_refused(comm, "null out", good.in(), nullptr, kCount);
  require_refused(comm, "an address that was never given out", reinterpret_cast<void*>(std::uintptr_t{0x7f00deadb000}),
                  good.out(), 4);
  require_refused(comm, "overlap", good.in(), static_cast<unsigned char*>(good.in()) + 64, 100);
  require_refused(comm, "unknown type", good.in(), good.out(), 1, static_cast<DType>(kDTypeCount));
  require_refused(comm, "unknown operation", good.in(), good.out(), 1, DType::kUInt32,
                  static_cast<ReduceOp>(kReduceOpCount));
  require_refused(comm, "a count beyond the address space", good.in(), good.out(), ~std::uint64_t{0} / 2);
  good.require_works();
  require_ok(comm, comm.all_reduce(nullptr, nullptr, 0, DType::kUInt32), "count 0 with null pointers");
  self.step("leave");
}
const RankProgram kArguments("arguments", run_arguments);
TEST(GpuBadInput, WrongPointersTypesAndCountsAreArgumentErrorsAndTheNextCallWorks) { run("arguments", world_of(1)); }

void run_ranges(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), 0, 1, self.config());
  Good good(comm);
  self.step("ranges that leave their allocation");
  const DeviceArray<std::uint32_t> large(std::size_t{4} << 20);  // of its own, far from others
  require_refused(comm, "one element past a large allocation", large.get(), good.out(), large.size() + 1);
  require_refused(comm, "the last element and one more", large.get() + large.size() - 1, good.out(), 2);
  // Small allocations lie side by side: the neighbour's memory is not this buffer's.
  std::array<std::unique_ptr<DeviceArray<std::uint32_t>>, 8> small;
  for (auto& array : small) array = std::make_unique<DeviceArray<std::uint32_t>>(kCount);
  for (const auto& array : small) {
    require_refused(comm, "one element past a small allocation", array->get(), good.out(), kCount + 1);
    require_refused(comm, "out one element too long", good.in(), array->get() + 1, kCount);
  }
  good.require_works();
  self.step("leave");
}
const RankProgram kRanges("ranges", run_ranges);
TEST(GpuBadInput, ARangeThatLeavesItsAllocationIsAnArgumentError) { run("ranges", world_of(1)); }

void run_freed(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  for (const CheckPointers check : {CheckPointers::kFirst, CheckPointers::kAlways}) {
    self.step("join", 40);
    Config config = self.config();
    config.check_pointers = check;
    Communicator comm(unique_id_create(), 0, 1, config);
    Good good(comm);
    constexpr std::size_t kLarge = std::size_t{64} << 20;
    self.step("freed memory");
    void* pointer = nullptr;
    cuda_ok(cudaMalloc(&pointer, kLarge), "cudaMalloc");
    cuda_ok(cudaMemset(pointer, 0, kLarge), "cudaMemset");
    cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    require_ok(comm, comm.all_reduce(pointer, good.out(), kCount, DType::kUInt32));
    if (check == CheckPointers::kFirst) comm.forget(pointer);
    cuda_ok(cudaFree(pointer), "cudaFree");
    require_refused(comm, "freed memory", pointer, good.out(), kCount);
    void* smaller = nullptr;  // often at the same address
    cuda_ok(cudaMalloc(&smaller, std::size_t{4} << 20), "cudaMalloc");
    std::printf("the address %s\n", smaller == pointer ? "came back as something smaller" : "did not come back");
    require_refused(comm, "the old length of an address", pointer, good.out(), kLarge / sizeof(std::uint32_t));
    cuda_ok(cudaFree(smaller), "cudaFree");
    good.require_works();
    self.step("leave");
  }
}
const RankProgram kFreed("freed", run_freed);
TEST(GpuBadInput, FreedMemoryIsAnArgumentErrorOnceItIsForgotten) { run("freed", world_of(1)); }

// Host memory that the GPU can read and managed memory.
void run_host_visible(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  void* memory[3][2] = {};
  for (void*& pointer : memory[0]) cuda_ok(cudaHostAlloc(&pointer, kBytes, cudaHostAllocDefault), "cudaHostAlloc");
  for (void*& pointer : memory[1]) cuda_ok(cudaMallocManaged(&pointer, kBytes), "cudaMallocManaged");
  for (void*& pointer : memory[2])
    cuda_ok(cudaHostAlloc(&pointer, kBytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  constexpr const char* kKinds[] = {"pinned host memory", "managed memory", "mapped portable host memory"};
  for (int kind = 0; kind < 3; ++kind) {
    self.step(kKinds[kind]);
    auto* in = static_cast<std::uint32_t*>(memory[kind][0]);
    auto* out = static_cast<std::uint32_t*>(memory[kind][1]);
    for (std::uint32_t round = 1; round <= 50; ++round) {
      for (std::uint32_t i = 0; i < kCount; ++i) {
        in[i] = (i + round) * 2654435761U + static_cast<std::uint32_t>(self.rank());
        out[i] = 0x7ff57ff5U;
      }
      self.meet();
      const Ticket ticket = comm.all_reduce(in, out, kCount, DType::kUInt32);
      if (round == 1 && self.rank() == 0)
        std::printf("%s: %s\n", kKinds[kind], ticket.status == Status::kOk ? "accepted" : comm.last_error().c_str());
      if (ticket.status == Status::kInvalidArgument && !comm.last_error().empty()) break;
      require_ok(comm, ticket, kKinds[kind]);
      for (std::uint32_t i = 0; i < kCount; ++i) {
        std::uint32_t expected = 0;
        for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(self.world()); ++rank)
          expected += (i + round) * 2654435761U + rank;
        require(out[i] == expected, std::string(kKinds[kind]) + ": round " + std::to_string(round) + ", element " +
                                        std::to_string(i) + " is wrong");
      }
    }
  }
  self.step("leave");
  for (void* pointer : memory[0]) cuda_ok(cudaFreeHost(pointer), "cudaFreeHost");
  for (void* pointer : memory[1]) cuda_ok(cudaFree(pointer), "cudaFree");
  for (void* pointer : memory[2]) cuda_ok(cudaFreeHost(pointer), "cudaFreeHost");
}
const RankProgram kHostVisible("host visible", run_host_visible);
TEST(GpuBadInput, PinnedAndManagedMemoryIsRightOrAnArgumentError) {
  run("host visible", world_of(side_by_side_world()));
}

// ---- set-up ---------------------------------------------------------------------------------------------------------

/// Joining must fail with kUnsupported and a text that has the argument in it, quickly and on every rank.
void run_refused(RankSelf& self) {
  self.step("join: must be refused", 50);
  Config config = self.config();
  config.device_ordinal = 0;
  config.allow_shared_device = self.argument() != "RINGBELL_ALLOW_SHARED_DEVICE";
  try {
    const Communicator comm(self.id(), self.rank(), self.world(), config);
  } catch (const Error& error) {
    std::printf("rank %d: %s: %s\n", self.rank(), status_name(error.status()), error.what());
    require(contains(error.what(), self.argument()), std::string("the reason is not named: ") + error.what());
    // Whoever looked first refuses; the other may hear of it from there.
    const bool told = error.status() == Status::kAborted && contains(error.what(), "failed to start");
    require(error.status() == Status::kUnsupported || (self.world() > 1 && told),
            std::string("status ") + status_name(error.status()));
    return;
  }
  throw std::runtime_error("joined, although " + self.argument() + " should have refused it");
}
const RankProgram kRefused("refused", run_refused);

/// Where no worker may stay, each call is launched: right, and the reason is told. @param argument the reason; with
/// "half" before it only rank 1 is refused
void run_each_launched(RankSelf& self) {
  const bool half = self.argument().rfind("half ", 0) == 0;
  const std::string reason = half ? self.argument().substr(5) : self.argument();
  const bool refused = !half || self.rank() == 1;
  if (half && refused) setenv("RINGBELL_RESIDENT", "0", 1);
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  self.step("join", 50);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  std::printf("rank %d: %s\n", self.rank(), comm.describe().c_str());
  require(contains(comm.describe(), "each call is launched") == refused, "described as " + comm.describe());
  require(!refused || contains(comm.describe(), reason), "the reason is not named: " + comm.describe());
  constexpr std::uint64_t kCalls = 50;
  const DeviceArray<std::uint32_t> in(kCount);
  const DeviceArray<std::uint32_t> out(kCount);
  Stream stream;
  self.step("calls", 60);
  for (std::uint32_t call = 1; call <= kCalls; ++call) {
    const std::uint64_t count = call % 3 == 0 ? kCount : 10;
    std::vector<std::uint32_t> values(count, call * (static_cast<std::uint32_t>(self.rank()) + 1));
    stream.copy(in.get(), values.data(), count * sizeof(std::uint32_t));
    require_ok(comm, comm.all_reduce(in.get(), out.get(), count, DType::kUInt32));
    stream.copy(values.data(), out.get(), count * sizeof(std::uint32_t));
    const auto world = static_cast<std::uint32_t>(self.world());
    for (const std::uint32_t value : values) require(value == call * world * (world + 1) / 2, "wrong sum");
  }
  require(!refused || comm.stats().launches >= kCalls * 9 / 10,
          std::to_string(comm.stats().launches) + " launches for 50 calls that are launched each");
  self.step("leave");
  self.meet();
}
const RankProgram kEachLaunched("each launched", run_each_launched);

TEST(CaseC17, WithoutResidencyEachCallIsLaunched) {
  GroupOptions options = world_of(side_by_side_world());
  options.environment = {"RINGBELL_RESIDENT=0"};
  options.argument = "RINGBELL_RESIDENT";
  run("each launched", options);
}

TEST(CaseC17, UnderLaunchBlockingEachCallIsLaunched) {
  GroupOptions options = world_of(side_by_side_world());
  options.environment = {"CUDA_LAUNCH_BLOCKING=1"};
  options.argument = "CUDA_LAUNCH_BLOCKING";
  run("each launched", options);
}

TEST(CaseC17, ARefusalOnOneRankFitsAWorkerThatStaysOnTheOther) {
  GroupOptions options = world_of(side_by_side_world());
  options.argument = "half RINGBELL_RESIDENT";
  run("each launched", options);
}

TEST(GpuBadInput, TwoRanksOnOneGpuNeedLeave) {
  GroupOptions options = world_of(2);
  options.environment = {"RINGBELL_ALLOW_SHARED_DEVICE=0"};
  options.argument = "RINGBELL_ALLOW_SHARED_DEVICE";
  run("refused", options);
}

// ---- ranks that disagree --------------------------------------------------------------------------------------------

void run_mismatch(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const DeviceArray<std::uint32_t> in(kCount);
  const DeviceArray<std::uint32_t> out(kCount);
  cuda_ok(cudaMemset(in.get(), 0, kBytes), "cudaMemset");
  cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  struct Difference {
    const char* name;
    std::uint64_t count[2];
    DType dtype[2];
    ReduceOp op[2];
  };
  constexpr auto kU32 = DType::kUInt32;
  constexpr auto kSum = ReduceOp::kSum;
  constexpr Difference kDifferences[] = {
      {"count", {1000, 1001}, {kU32, kU32}, {kSum, kSum}},
      {"count, one of them 0", {1000, 0}, {kU32, kU32}, {kSum, kSum}},
      {"count, over several rounds", {kCount, kCount / 2}, {kU32, kU32}, {kSum, kSum}},
      {"type of the same size", {1000, 1000}, {kU32, DType::kFloat32}, {kSum, kSum}},
      {"operation", {1000, 1000}, {kU32, kU32}, {kSum, ReduceOp::kMax}},
  };
  std::size_t which = 0;
  for (const Difference& difference : kDifferences) {
    if (self.rank() == 0) {
      const UniqueId id = unique_id_create();
      std::copy_n(id.bytes, kUniqueIdBytes, self.board.blob[which % 2]);
    }
    self.meet();
    UniqueId id{};
    std::copy_n(self.board.blob[which % 2], kUniqueIdBytes, id.bytes);
    ++which;
    self.step(std::string("join; different ") + difference.name, 40);
    Communicator comm(id, self.rank(), self.world(), self.config());
    require_ok(comm, comm.all_reduce(in.get(), out.get(), 100, kU32), "a call that agrees");
    const int mine = self.rank() % 2;
    const Ticket ticket =
        comm.all_reduce(in.get(), out.get(), difference.count[mine], difference.dtype[mine], difference.op[mine]);
    const Status status = comm.wait(ticket);
    const std::string text = comm.last_error();
    std::printf("rank %d, different %s: %s: %s\n", self.rank(), difference.name, status_name(status), text.c_str());
    std::fflush(stdout);
    require(status == Status::kMismatch,
            std::string("different ") + difference.name + ": " + status_name(status) + ": " + text);
    require(contains(text, "rank 0") && contains(text, "rank 1"), "the text does not name both ranks: " + text);
    self.step(std::string("leave; different ") + difference.name, 40);
  }
}
const RankProgram kMismatch("mismatch", run_mismatch);
TEST(GpuBadInput, RanksThatDisagreeOnACallBothGetAMismatch) {
  GroupOptions options = world_of(2);
  options.limit_s = 100;
  run("mismatch", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
