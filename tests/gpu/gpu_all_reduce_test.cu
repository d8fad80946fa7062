// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// AllReduce on GPUs, bit for bit against the reference, one process a rank (one GPU each, or one for all): protocols,
// types, operations, counts, alignments, in place; the same bits on every rank. Inputs are rewritten by copies and by
// kernels in turn, outputs poisoned, guards checked. GpuAllReduce.SmallSet is the part for compute-sanitizer.
// ringbell-test: timeout=400
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kSeed = 2024;
constexpr std::uint32_t kSmallSlot = 1920;  // a round of a few KB: several rounds and reused slots at small counts
constexpr std::size_t kWordsPerRank = 1024;
constexpr std::size_t kNotPermitted = kMostRanks * kWordsPerRank;  // board words: the hashes of each rank, then these
constexpr std::size_t kHashCount = kNotPermitted + 1;              // + rank
constexpr std::size_t kCapacity = std::size_t{5} << 20;

__global__ void copy_bytes(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < bytes; i += stride) to[i] = from[i];
}

/// Writes in turn by a copy from the host and by a kernel.
class RewrittenBuffer : public DeviceBuffer {
 public:
  RewrittenBuffer() : DeviceBuffer(kCapacity), staged_(kCapacity) {}
  void write(const void* from) {
    if (++writes_ % 2 == 0 || bytes() == 0) return DeviceBuffer::write(from);
    stream().copy(staged_.get(), from, bytes());
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>(bytes() / 256 + 1, 64));
    copy_bytes<<<blocks, 256, 0, stream().get()>>>(static_cast<unsigned char*>(data()), staged_.get(), bytes());
    cuda_ok(cudaGetLastError(), "copy_bytes");
    stream().sync();
  }

 private:
  DeviceArray<unsigned char> staged_;
  unsigned writes_ = 0;
};

std::vector<AllReduceCase> small_counts(Protocol protocol, std::size_t rows) {
  constexpr std::uint64_t kCounts[] = {0, 1, 2, 3, 7, 17, 60, 100, 256, 1000, 1921, 4096, 10007, 15, 33};
  std::vector<AllReduceCase> cases = pairwise_rows(rows);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].count = kCounts[i % std::size(kCounts)];
    cases[i].protocol = protocol;
  }
  return cases;
}

/// A chunk and its neighbours, a whole round, more than all slots hold; for a world with slots of 61440 bytes.
std::vector<AllReduceCase> large_counts(Protocol protocol, int world) {
  const std::uint64_t round = std::uint64_t{61440} * static_cast<std::uint64_t>(world);
  std::vector<AllReduceCase> cases;
  const auto add = [&](std::uint64_t count, DType dtype, ReduceOp op, unsigned shift, Placement placement) {
    AllReduceCase c;
    c.count = count;
    c.dtype = dtype;
    c.op = op;
    c.protocol = protocol;
    c.in_shift = shift;
    c.out_shift = (shift * 3) % 16;
    c.placement = placement;
    cases.push_back(c);
  };
  add(round / 4, DType::kFloat32, ReduceOp::kSum, 0, Placement::kOutOfPlace);
  add(round / 4 + 1, DType::kInt32, ReduceOp::kMax, 4, Placement::kMixed);
  add(round / 2 - 1, DType::kBFloat16, ReduceOp::kAvg, 2, Placement::kInPlace);
  add(round + 1, DType::kUInt8, ReduceOp::kSum, 1, Placement::kOutOfPlace);
  add((std::uint64_t{1} << 20) / 8, DType::kInt64, ReduceOp::kProd, 8, Placement::kMixed);
  add((std::uint64_t{1} << 20) / 4 + 3, DType::kFloat32, ReduceOp::kSum, 4, Placement::kInPlace);
  add((std::uint64_t{4} << 20) / 4, DType::kFloat32, ReduceOp::kSum, 0, Placement::kOutOfPlace);
  return cases;
}

/// "PROTOCOL ROWS": what the suite runs.
struct Suite {
  Protocol protocol;
  std::size_t rows;
  explicit Suite(const std::string& argument)
      : protocol(static_cast<Protocol>(argument.at(0) - '0')), rows(std::stoul(argument.substr(2))) {}
  static std::string text(Protocol protocol, std::size_t rows) {
    return std::to_string(static_cast<int>(protocol)) + " " + std::to_string(rows);
  }
  [[nodiscard]] std::vector<AllReduceCase> small() const { return small_counts(protocol, rows); }
  [[nodiscard]] std::vector<AllReduceCase> large(int world) const {
    return rows < 100 ? std::vector<AllReduceCase>{} : large_counts(protocol, world);
  }
};

void run_suite(RankSelf& self) {
  const Suite suite(self.argument());
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  RewrittenBuffer in;
  RewrittenBuffer out;
  std::size_t word = static_cast<std::size_t>(self.rank()) * kWordsPerRank;
  const auto run = [&](std::uint32_t slot_bytes, std::size_t which, const std::vector<AllReduceCase>& cases) {
    if (cases.empty()) return;
    self.step("join, slots of " + std::to_string(slot_bytes) + " bytes", 40);
    Config config = self.config();
    config.slot_bytes = slot_bytes;
    UniqueId id = self.id();
    if (which == 1) std::copy_n(self.board.blob[0], kUniqueIdBytes, id.bytes);
    Communicator comm(id, self.rank(), self.world(), config);
    if (self.rank() == 0 && which == 0) std::printf("%s\n", comm.describe().c_str());
    if (suite.protocol == Protocol::kLL128 && contains(comm.describe(), "LL128 not permitted")) {
      self.board.words[kNotPermitted].store(1);
      return;
    }
    self.step(std::to_string(cases.size()) + " cases, slots of " + std::to_string(slot_bytes) + " bytes", 90);
    const SuiteResult result =
        run_cases(comm, cases, kSeed, plan_basis(self.world(), DeviceKind::kCuda, slot_bytes), in, out);
    require(result.failure.empty(), result.failure);
    for (const std::uint64_t hash : result.hashes) self.board.words[word++].store(hash);
    std::printf("rank %d: %zu cases, %llu launches\n", self.rank(), cases.size(),
                static_cast<unsigned long long>(comm.stats().launches));
    self.step("leave");
  };
  run(kSmallSlot, 0, suite.small());
  if (self.rank() == 0) {
    const UniqueId second = unique_id_create();
    std::copy_n(second.bytes, kUniqueIdBytes, self.board.blob[0]);
  }
  self.meet();
  run(0, 1, suite.large(self.world()));
  self.board.words[kHashCount + static_cast<std::size_t>(self.rank())].store(word);
}
const RankProgram kSuite("suite", run_suite);

void run_world(int world, Protocol protocol, std::size_t rows) {
  GroupOptions options;
  options.world = world;
  options.devices = gpu_count();
  options.argument = Suite::text(protocol, rows);
  options.limit_s = 150;
  RankGroup group("suite", options);
  if (!finish_group(group, world)) return;
  if (group.board().words[kNotPermitted].load() != 0) GTEST_SKIP() << "LL128 is not permitted between these GPUs";
  const Suite suite(options.argument);
  std::vector<AllReduceCase> cases = suite.small();
  for (const AllReduceCase& c : suite.large(world)) cases.push_back(c);
  std::vector<SuiteResult> results(static_cast<std::size_t>(world));
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const std::size_t end = group.board().words[kHashCount + rank].load();
    for (std::size_t word = rank * kWordsPerRank; word < end; ++word)
      results[rank].hashes.push_back(group.board().words[word].load());
  }
  EXPECT_EQ(suite_failure(cases, results), "");
}

class GpuAllReduce : public testing::TestWithParam<std::tuple<int, Protocol>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, GpuAllReduce,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::ValuesIn(kProtocols)),
                         [](const auto& info) {
                           return std::string(protocol_name(std::get<1>(info.param))) + "_" +
                                  std::to_string(std::get<0>(info.param)) + "ranks";
                         });

TEST_P(GpuAllReduce, HasTheBitsOfTheReferenceOnEveryRank) {
  run_world(std::get<0>(GetParam()), std::get<1>(GetParam()), 240);
}

TEST(GpuAllReduceSmallSet, HasTheBitsOfTheReferenceOnEveryRank) {
  for (const Protocol protocol : kProtocols) run_world(2, protocol, 30);
}

// ---- the peer rewrites: a call's input is the result of the one before, queued together -----------------------------

constexpr std::uint64_t kChainCount = 5000;
constexpr int kChain = 12;

ReduceOp chain_op(int call) { return call % 3 == 2 ? ReduceOp::kMax : ReduceOp::kSum; }

void run_chain(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  constexpr std::size_t kBytes = kChainCount * sizeof(std::uint64_t);
  DeviceBuffer first(kBytes);
  DeviceBuffer second(kBytes);
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  std::vector<std::uint64_t> values(kChainCount);
  std::vector<std::uint64_t> expected(kChainCount);
  for (int round = 0; round < 60; ++round) {
    self.step("chain " + std::to_string(round));
    const auto protocol = kProtocols[static_cast<std::size_t>(round) % 3];
    std::fill(expected.begin(), expected.end(), 0);
    for (int rank = 0; rank < self.world(); ++rank) {
      fill_input(values.data(), kChainCount, DType::kUInt64, rank, static_cast<std::uint64_t>(round), kSeed);
      for (std::size_t i = 0; i < kChainCount; ++i) expected[i] += values[i];
    }
    for (int call = 1; call < kChain; ++call) {
      if (chain_op(call) == ReduceOp::kMax) continue;  // of equal values
      for (std::uint64_t& value : expected) value *= static_cast<std::uint64_t>(self.world());
    }
    first.reset(kBytes);
    second.reset(kBytes, 8);
    fill_input(values.data(), kChainCount, DType::kUInt64, self.rank(), static_cast<std::uint64_t>(round), kSeed);
    first.write(values.data());
    second.poison();
    std::vector<AllReduceCall> calls;
    DeviceBuffer* from = &first;
    DeviceBuffer* to = &second;
    for (int call = 0; call < kChain; ++call) {
      if (call % 4 == 3) to = from;  // in place
      AllReduceCall next{from->data(), to->data(), kChainCount, DType::kUInt64, chain_op(call)};
      next.options.protocol = protocol;
      calls.push_back(next);
      from = to;
      to = from == &first ? &second : &first;
    }
    std::vector<Ticket> tickets(calls.size());
    require_ok(comm, comm.all_reduce_many(calls, tickets), "all_reduce_many");
    require_ok(comm, comm.wait_all(tickets), "wait_all");
    from->read(values.data());
    const std::string text = difference(values.data(), expected.data(), kChainCount, DType::kUInt64);
    require(text.empty(), "round " + std::to_string(round) + " by " + protocol_name(protocol) + ": " + text);
    require(first.damage().empty() && second.damage().empty(),
            "a guard was written: " + first.damage() + second.damage());
  }
  self.step("leave");
}
const RankProgram kChainProgram("chain", run_chain);

TEST(GpuAllReduceChain, EveryCallReadsTheResultOfTheOneBefore) {
  for (const int world : {1, 2, 3}) {
    GroupOptions options;
    options.world = world;
    options.devices = gpu_count();
    options.limit_s = 100;
    SCOPED_TRACE(std::to_string(world) + " ranks");
    run_group("chain", options);
  }
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
