// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's buffers on the GPU hold the same bytes as on the CPU, and its count of wrong elements, made on the device by
// CUB, finds every kind of damage. No communicator takes part.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tools/perf_buffers_cpu.cpp"  // the program's sources are in no library
#include "tools/perf_buffers_cuda.cu"

namespace ringbell::tools {
namespace {

constexpr std::uint64_t kCount = 70001;  // more than one block of CUB's, and odd
constexpr std::uint64_t kBytes = kCount * 8;

class GpuPerfBuffers : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here";
    gpu_ = make_cuda_buffers(0, kBytes);
    cpu_ = make_cpu_buffers(kBytes);
  }

  template <class Body>
  static void each_type_and_operation(Body body) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int op = 0; op < kReduceOpCount; ++op) {
        SCOPED_TRACE(std::string(dtype_name(static_cast<DType>(dtype))) + " " +
                     reduce_op_name(static_cast<ReduceOp>(op)));
        body(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
      }
    }
  }

  std::unique_ptr<Buffers> gpu_;
  std::unique_ptr<Buffers> cpu_;
};

TEST_F(GpuPerfBuffers, FillTheSameBytesAsOnTheCpu) {
  each_type_and_operation([this](DType dtype, ReduceOp op) {
    const ValueRule rule = value_rule(dtype, op, 3, 11, 4);
    const std::uint64_t bytes = kCount * dtype_bytes(dtype);
    std::vector<unsigned char> got(bytes);
    gpu_->fill(gpu_->in(), rule, 2, kCount);
    gpu_->copy_to_host(got.data(), gpu_->in(), bytes);
    cpu_->fill(cpu_->in(), rule, 2, kCount);
    EXPECT_EQ(std::memcmp(got.data(), cpu_->in(), bytes), 0);
  });
}

TEST_F(GpuPerfBuffers, CountWrongElementsAsOnTheCpu) {
  each_type_and_operation([this](DType dtype, ReduceOp op) {
    const std::uint64_t width = dtype_bytes(dtype);
    const ValueRule rule = value_rule(dtype, op, 5, 11, 4);
    std::vector<unsigned char> right(kCount * width);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const std::uint64_t code = expected_element(rule, i);
      std::memcpy(right.data() + i * width, &code, width);
    }
    gpu_->copy_from_host(gpu_->out(), right.data(), right.size());
    EXPECT_EQ(gpu_->count_wrong(gpu_->out(), rule, kCount), 0U);
    std::vector<unsigned char> damaged = right;
    damaged.front() ^= 1;
    damaged[damaged.size() / 2] ^= 0x10;
    damaged.back() ^= 0x80;
    gpu_->copy_from_host(gpu_->out(), damaged.data(), damaged.size());
    EXPECT_EQ(gpu_->count_wrong(gpu_->out(), rule, kCount), 3U);
    gpu_->poison(gpu_->out(), poison_byte(rule), right.size());
    cpu_->poison(cpu_->out(), poison_byte(rule), right.size());
    const std::uint64_t wrong = gpu_->count_wrong(gpu_->out(), rule, kCount);
    EXPECT_EQ(wrong, cpu_->count_wrong(cpu_->out(), rule, kCount));
    EXPECT_GT(wrong, kCount * 9 / 10);
  });
}

TEST_F(GpuPerfBuffers, OneElementIsCountedToo) {
  const ValueRule rule = value_rule(DType::kFloat32, ReduceOp::kSum, 2, 1, 1);
  gpu_->poison(gpu_->out(), poison_byte(rule), 8);
  EXPECT_EQ(gpu_->count_wrong(gpu_->out(), rule, 1), 1U);
}

}  // namespace
}  // namespace ringbell::tools
