// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// One suite for every wire format and form of the CPU worker, on real threads: any ranks, sizes around every boundary,
// all types and operations, bit for bit against the reference in the ring's order of folds.
#include <gtest/gtest.h>

#include "tests/support/reference.hpp"
#include "tests/support/thread_world.hpp"

namespace ringbell::test {
namespace {

template <class M, Protocol kWire, Algorithm kHow = Algorithm::kRing>
struct Form {
  using Ops = M;
  static constexpr Protocol kProtocol = kWire;
  static constexpr Algorithm kAlgorithm = kHow;
};

constexpr std::size_t kGuardBytes = 64;

struct Case {
  std::uint64_t count;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t shift = 0;  // elements by which the buffers miss 16 bytes
  bool in_place = false;
  std::uint32_t chunk_bytes = 1920;
};

/// The rank that comes first in the fold of an element.
int start_rank(const Case& c, std::uint64_t index, std::uint32_t world) {
  const std::uint64_t size = dtype_bytes(c.dtype);
  const std::uint64_t bytes = c.count * size;
  for (std::uint64_t offset = 0;;) {
    const std::uint64_t chunk = device::round_chunk_bytes(bytes, offset, c.chunk_bytes, world);
    if (index * size < offset + world * chunk) {
      return static_cast<int>(device::first_fold(static_cast<std::uint32_t>((index * size - offset) / chunk), world));
    }
    offset += world * chunk;
  }
}

template <class F>
class ProtocolConformance : public testing::Test {
 protected:
  using World = ThreadWorld<typename F::Ops>;

  void run(World& world, unsigned ranks, const Case& c) {
    const std::size_t bytes = c.count * dtype_bytes(c.dtype);
    const std::size_t shift = kGuardBytes + c.shift * dtype_bytes(c.dtype);
    ++call_;
    std::vector<std::vector<std::byte>> in(ranks), out(ranks), kept(ranks);
    std::vector<const void*> inputs;
    std::vector<device::Command> commands;
    for (unsigned r = 0; r < ranks; ++r) {
      out[r].assign(bytes + shift + kGuardBytes, std::byte{0xee});
      in[r].assign(bytes + shift + kGuardBytes, std::byte{0xdd});
      std::byte* input = (c.in_place ? out[r] : in[r]).data() + shift;
      fill_input(input, c.count, c.dtype, static_cast<int>(r), call_, 7, FillKind::kMixed);
      kept[r].assign(input, input + bytes);
      inputs.push_back(kept[r].data());
      commands.push_back({input, out[r].data() + shift, c.count, call_, c.chunk_bytes, device::CommandKind::kAllReduce,
                          0, c.dtype, c.op, F::kAlgorithm, F::kProtocol, 1});
    }
    std::vector<std::byte> expected(bytes);
    if (F::kAlgorithm == Algorithm::kRing) {
      ring_reference(expected.data(), inputs, c.count, c.dtype, c.op,
                     [&](std::uint64_t i) { return start_rank(c, i, ranks); });
    } else {
      direct_reference(expected.data(), inputs, c.count, c.dtype, c.op);
    }
    const std::uint64_t before = world.published_bytes();
    const std::vector<Status> statuses = world.call(commands);
    for (unsigned r = 0; r < ranks; ++r) {
      ASSERT_EQ(statuses[r], Status::kOk) << "rank " << r;
      ASSERT_EQ(difference(out[r].data() + shift, expected.data(), c.count, c.dtype), "")
          << "rank " << r << " of " << ranks << ", count " << c.count << ", dtype " << static_cast<int>(c.dtype)
          << ", op " << static_cast<int>(c.op) << ", shift " << c.shift << ", in place " << c.in_place;
      for (std::size_t i = 0; i < kGuardBytes; ++i) {
        ASSERT_EQ(out[r][shift - 1 - i], std::byte{0xee}) << i + 1 << " bytes before the output";
        ASSERT_EQ(out[r][shift + bytes + i], std::byte{0xee}) << i << " bytes after the output";
      }
      if (!c.in_place && bytes != 0) {
        ASSERT_EQ(std::memcmp(in[r].data() + shift, kept[r].data(), bytes), 0) << "the input was written";
      }
    }
    const std::uint64_t times = F::kAlgorithm == Algorithm::kRing ? 2 : ranks;
    ASSERT_EQ(world.published_bytes() - before, times * (ranks - 1) * bytes);
  }

 private:
  std::uint64_t call_ = 0;
};

using Forms = testing::Types<Form<device::CpuOps, Protocol::kLL>, Form<device::CpuOps, Protocol::kLL128>,
                             Form<device::CpuOps, Protocol::kSimple>, Form<device::CpuFaultOps, Protocol::kLL>,
                             Form<device::CpuFaultOps, Protocol::kLL128>, Form<device::CpuFaultOps, Protocol::kSimple>,
                             Form<device::CpuOps, Protocol::kLL, Algorithm::kOneShot>,
                             Form<device::CpuOps, Protocol::kLL128, Algorithm::kOneShot>,
                             Form<device::CpuOps, Protocol::kSimple, Algorithm::kOneShot>,
                             Form<device::CpuFaultOps, Protocol::kLL, Algorithm::kOneShot>>;
TYPED_TEST_SUITE(ProtocolConformance, Forms);

TYPED_TEST(ProtocolConformance, AnyRanksAndSizes) {
  for (const unsigned ranks : {1u, 2u, 3u, 4u, 5u, 7u, 8u}) {
    ThreadWorld<typename TypeParam::Ops> world(ranks);
    for (const std::uint64_t count :
         {0ull, 1ull, 2ull, 3ull, 4ull, 5ull, 29ull, 30ull, 31ull, 60ull, 480ull, 481ull, 1920ull * 2 + 1, 10'007ull}) {
      this->run(world, ranks, {.count = count, .in_place = count % 2 == 1});
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ProtocolConformance, EveryTypeAndOperation) {
  ThreadWorld<typename TypeParam::Ops> world(3);
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      this->run(world, 3,
                {.count = 77,
                 .dtype = static_cast<DType>(dtype),
                 .op = static_cast<ReduceOp>(op),
                 .shift = static_cast<std::size_t>(dtype + op) % 3,
                 .chunk_bytes = 240});
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ProtocolConformance, AnyAlignmentAndLength) {
  ThreadWorld<typename TypeParam::Ops> world(2);
  for (std::size_t shift = 0; shift < 16; ++shift) {
    for (std::uint64_t count = 1; count < 34; ++count) {
      this->run(world, 2,
                {.count = count,
                 .dtype = DType::kUInt8,
                 .shift = shift,
                 .in_place = (shift + count) % 2 == 0,
                 .chunk_bytes = 16});
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(ProtocolConformance, EpochsWrap) {
  for (const std::uint64_t start : {(1ull << 31) - 4, 0xffffffffull - 9, (1ull << 32) - 4}) {
    ThreadWorld<typename TypeParam::Ops> world(3, start);
    for (std::uint64_t i = 0; i < 12; ++i) {
      this->run(world, 3, {.count = 5 + 40 * (i % 3), .dtype = DType::kInt64, .chunk_bytes = 240});
      if (this->HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ringbell::test
