// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// device/math gives the same bits on the GPU as on the CPU: every type and operation, and the conversions by
// themselves. Whether the CPU's bits are right is the matter of tests/unit/reduce_test.cpp. One GPU; exit 77 without
// one.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "device/math/fp8.hpp"
#include "device/math/half.hpp"
#include "device/math/reduce.hpp"
#include "tests/support/reference.hpp"

namespace ringbell::device {
namespace {

constexpr int kThreads = 256;

/// Managed memory: the test writes, the kernel works, the test reads.
template <class T>
class Shared {
 public:
  explicit Shared(std::size_t size) : size_(size) {
    const cudaError_t error = cudaMallocManaged(&data_, size * sizeof(T));
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { (void)cudaFree(data_); }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

__global__ void fold_both_widths(Quad* by_quad, std::uint64_t* by_word, const Quad* a, const Quad* b, std::size_t quads,
                                 ReduceRule rule) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= quads) return;
  by_quad[i] = reduce(a[i], b[i], rule);
  by_word[2 * i] = reduce(a[i].lo, b[i].lo, rule);
  by_word[2 * i + 1] = reduce(a[i].hi, b[i].hi, rule);
}

void run(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

/// A third each of exact, mixed and arbitrary values; of 8-bit types the last third holds every pair.
void fill(const Shared<Quad>& quads, DType dtype, int rank) {
  const std::size_t third = quads.size() / 3;
  const std::uint64_t count = third * kQuadBytes / dtype_bytes(dtype);
  test::fill_input(quads.data(), count, dtype, rank, 7, 1, test::FillKind::kExact);
  test::fill_input(quads.data() + third, count, dtype, rank, 7, 1, test::FillKind::kMixed);
  test::fill_input(quads.data() + 2 * third, count, dtype, rank, 7, 1, test::FillKind::kBits);
  if (dtype_bytes(dtype) != 1) return;
  auto* const bytes = reinterpret_cast<unsigned char*>(quads.data() + 2 * third);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(rank == 0 ? i : i >> 8);
}

class ReduceOnGpu : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(EveryType, ReduceOnGpu, testing::Range(0, kDTypeCount));

TEST_P(ReduceOnGpu, GivesTheBitsOfTheCpu) {
  const auto dtype = static_cast<DType>(GetParam());
  const Shared<Quad> a(3 * 65536);
  const Shared<Quad> b(a.size());
  const Shared<Quad> by_quad(a.size());
  const Shared<std::uint64_t> by_word(2 * a.size());
  fill(a, dtype, 0);
  fill(b, dtype, 1);
  std::vector<ReduceRule> rules;
  for (int op = 0; op < kReduceOpCount; ++op) rules.push_back({dtype, static_cast<ReduceOp>(op), 0});
  for (std::uint32_t world = 1; world <= 8; ++world) rules.push_back({dtype, ReduceOp::kAvg, world});
  for (const ReduceRule rule : rules) {
    const auto blocks = static_cast<unsigned>((a.size() + kThreads - 1) / kThreads);
    fold_both_widths<<<blocks, kThreads>>>(by_quad.data(), by_word.data(), a.data(), b.data(), a.size(), rule);
    run(cudaGetLastError());
    run(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Quad expected = reduce(a[i], b[i], rule);
      ASSERT_TRUE(by_quad[i].lo == expected.lo && by_quad[i].hi == expected.hi && by_word[2 * i] == expected.lo &&
                  by_word[2 * i + 1] == expected.hi)
          << "op " << static_cast<int>(rule.op) << " divide_by " << rule.divide_by << ", quad " << i << std::hex
          << ": CPU " << expected.lo << " " << expected.hi << ", GPU by quad " << by_quad[i].lo << " " << by_quad[i].hi
          << ", by word " << by_word[2 * i] << " " << by_word[2 * i + 1] << ", of " << a[i].lo << " " << a[i].hi
          << " and " << b[i].lo << " " << b[i].hi;
    }
  }
}

/// A float32 in all four narrow formats, packed.
RINGBELL_HD std::uint64_t narrowed(std::uint32_t bits) {
  const auto value = bits_as<float>(bits);
  return Float16::from_float(value) | (std::uint64_t{BFloat16::from_float(value)} << 16) |
         (std::uint64_t{Float8E4M3::from_float(value)} << 32) | (std::uint64_t{Float8E5M2::from_float(value)} << 40);
}

/// The low bits of `code` in all four narrow formats, each as float32, mixed into one word; which NaN is left open.
RINGBELL_HD std::uint64_t widened(std::uint32_t code) {
  std::uint64_t mixed = 0;
  for (const float value : {Float16::to_float(code & 0xffffU), BFloat16::to_float(code & 0xffffU),
                            Float8E4M3::to_float(code & 0xffU), Float8E5M2::to_float(code & 0xffU)}) {
    mixed = (mixed ^ (value == value ? bits_as<std::uint32_t>(value) : kFloat32Nan)) * 0x9e3779b97f4a7c15U;
  }
  return mixed;
}

constexpr std::uint32_t kStep = 509;  // odd: the low bits take every pattern

__global__ void narrow_many(std::uint64_t* out, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = narrowed(static_cast<std::uint32_t>(i) * kStep);
}

__global__ void widen_all(std::uint64_t* out, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = widened(static_cast<std::uint32_t>(i));
}

TEST(ConversionsOnGpu, GiveTheBitsOfTheCpu) {
  const Shared<std::uint64_t> narrow((std::uint64_t{1} << 32) / kStep);
  const Shared<std::uint64_t> wide(65536);
  narrow_many<<<static_cast<unsigned>(narrow.size() / kThreads + 1), kThreads>>>(narrow.data(), narrow.size());
  run(cudaGetLastError());
  widen_all<<<static_cast<unsigned>(wide.size() / kThreads), kThreads>>>(wide.data(), wide.size());
  run(cudaGetLastError());
  run(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(i) * kStep;
    ASSERT_EQ(narrow[i], narrowed(bits)) << std::hex << bits;
  }
  for (std::size_t i = 0; i < wide.size(); ++i)
    ASSERT_EQ(wide[i], widened(static_cast<std::uint32_t>(i))) << std::hex << i;
}

/// Every pair of codes: first + blockIdx.y is one operand, the thread the other; counts words whose bits are not those
/// of float32.
template <class Format>
__global__ void add_every_pair(unsigned long long* wrong, std::uint32_t first) {
  const std::uint32_t code = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t other = first + blockIdx.y;
  const std::uint32_t a = code | (other << 16);  // both operand orders at once
  const std::uint32_t b = other | (code << 16);
  if (Format::add_pair(a, b) != detail::add_pair_by_float32<Format>(a, b)) atomicAdd(wrong, 1ULL);
}

TEST(PairsOnGpu, EverySumOfTwo16BitFloatsIsTheOneRoundedFromFloat32) {
  const Shared<unsigned long long> wrong(2);
  wrong[0] = wrong[1] = 0;
  for (const std::uint32_t first : {0U, 32768U}) {  // a grid has fewer than 65536 rows
    const dim3 blocks(65536 / kThreads, 32768);
    add_every_pair<Float16><<<blocks, kThreads>>>(wrong.data(), first);
    add_every_pair<BFloat16><<<blocks, kThreads>>>(wrong.data() + 1, first);
  }
  run(cudaGetLastError());
  run(cudaDeviceSynchronize());
  EXPECT_EQ(wrong[0], 0U) << "float16";
  EXPECT_EQ(wrong[1], 0U) << "bfloat16";
}

}  // namespace
}  // namespace ringbell::device

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return RUN_ALL_TESTS();
}
