// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's buffers for the CUDA executor: device memory, filled by a kernel, compared and counted on the device (CUB). An
// own non-blocking stream; no call here drains the device, frees memory or loads a kernel once the constructor is
// through.
#include <string>

#include <cub/device/device_reduce.cuh>
#include <cuda_runtime.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "tools/exit_codes.hpp"
#include "tools/perf_buffers.hpp"

namespace ringbell::tools {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw ExitError(kExitEnvironment,
                  std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

// The width is asked per element and not by a template: one kernel to load, and the branch is uniform.
__device__ void store_element(void* data, std::uint32_t bits, std::uint64_t index, std::uint64_t code) {
  switch (bits) {
    case 8: static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(code); break;
    case 16: static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(code); break;
    case 32: static_cast<std::uint32_t*>(data)[index] = static_cast<std::uint32_t>(code); break;
    default: static_cast<std::uint64_t*>(data)[index] = code; break;
  }
}

__device__ std::uint64_t load_element(const void* data, std::uint32_t bits, std::uint64_t index) {
  switch (bits) {
    case 8: return static_cast<const std::uint8_t*>(data)[index];
    case 16: return static_cast<const std::uint16_t*>(data)[index];
    case 32: return static_cast<const std::uint32_t*>(data)[index];
    default: return static_cast<const std::uint64_t*>(data)[index];
  }
}

__global__ void fill_kernel(void* data, ValueRule rule, std::uint32_t rank, std::uint64_t count) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    store_element(data, rule.bits, i, input_element(rule, rank, i));
  }
}

/// 1 where an element is wrong.
struct IsWrong {
  const void* data;
  ValueRule rule;
  __device__ std::uint64_t operator()(std::uint64_t index) const {
    return load_element(data, rule.bits, index) != expected_element(rule, index) ? 1 : 0;
  }
};

class CudaBuffers final : public Buffers {
 public:
  CudaBuffers(int device, std::uint64_t bytes, bool flushes, const DeviceMemory& memory) : memory_(memory) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    if (!memory_.allocate) {
      memory_.allocate = [](std::uint64_t size) {
        void* data = nullptr;
        check(cudaMalloc(&data, size), "cudaMalloc of perf's buffers");
        return data;
      };
      memory_.release = [](void* data) { cudaFree(data); };
    }
    in_ = memory_.allocate(bytes);
    out_ = memory_.allocate(bytes);
    set_regions(in_, out_, bytes);
    if (flushes) {
      int cache = 0;
      check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
      flush_bytes_ = 2 * static_cast<std::size_t>(cache);
      check(cudaMalloc(&flush_, flush_bytes_), "cudaMalloc of memory to flush the L2 with");
    }
    check(cudaMalloc(&wrong_, sizeof(*wrong_)), "cudaMalloc");
    check(cudaHostAlloc(reinterpret_cast<void**>(&wrong_on_host_), sizeof(*wrong_on_host_), cudaHostAllocDefault),
          "cudaHostAlloc");
    const ValueRule rule = value_rule(DType::kUInt8, ReduceOp::kSum, 1, 0, 0);
    check(sum_wrong(nullptr, scratch_bytes_, out_, rule, bytes), "cub::DeviceReduce");
    check(cudaMalloc(&scratch_, scratch_bytes_), "cudaMalloc of CUB's scratch memory");
    // Loads the kernels, the one-block and the many-block form of the sum.
    for (const std::uint64_t count : {std::uint64_t{1}, bytes}) {
      fill(in_, rule, 0, count);
      poison(out_, 0, count);
      static_cast<void>(count_wrong(in_, rule, count));
    }
  }

  ~CudaBuffers() override {
    cudaFree(scratch_);
    cudaFreeHost(wrong_on_host_);
    cudaFree(wrong_);
    cudaFree(flush_);
    if (out_ != nullptr) memory_.release(out_);
    if (in_ != nullptr) memory_.release(in_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  CudaBuffers(const CudaBuffers&) = delete;
  CudaBuffers& operator=(const CudaBuffers&) = delete;

  void fill(void* data, const ValueRule& rule, int rank, std::uint64_t count) override {
    constexpr unsigned kThreads = 256;
    constexpr std::uint64_t kMostBlocks = 1024;
    const std::uint64_t blocks = (count + kThreads - 1) / kThreads;
    fill_kernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream_>>>(
        data, rule, static_cast<std::uint32_t>(rank), count);
    check(cudaGetLastError(), "perf's fill kernel");
    wait();
  }

  void poison(void* data, int byte, std::uint64_t bytes) override {
    check(cudaMemsetAsync(data, byte, bytes, stream_), "cudaMemsetAsync");
    wait();
  }

  std::uint64_t count_wrong(const void* data, const ValueRule& rule, std::uint64_t count) override {
    check(sum_wrong(scratch_, scratch_bytes_, data, rule, count), "cub::DeviceReduce");
    check(cudaMemcpyAsync(wrong_on_host_, wrong_, sizeof(*wrong_), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    wait();
    return *wrong_on_host_;
  }

  void copy_to_host(void* host, const void* data, std::uint64_t bytes) override {
    check(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    wait();
  }

  void copy_from_host(void* data, const void* host, std::uint64_t bytes) override {
    check(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    wait();
  }

  void flush() override { poison(flush_, ++flushes_ & 0xff, flush_bytes_); }

 private:
  void wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  cudaError_t sum_wrong(void* scratch, std::size_t& scratch_bytes, const void* data, const ValueRule& rule,
                        std::uint64_t count) {
    const auto ones =
        thrust::make_transform_iterator(thrust::make_counting_iterator(std::uint64_t{0}), IsWrong{data, rule});
    return cub::DeviceReduce::Sum(scratch, scratch_bytes, ones, wrong_, count, stream_);
  }

  DeviceMemory memory_;
  cudaStream_t stream_ = nullptr;
  void* flush_ = nullptr;
  std::size_t flush_bytes_ = 0;
  int flushes_ = 0;
  void* in_ = nullptr;
  void* out_ = nullptr;
  std::uint64_t* wrong_ = nullptr;
  std::uint64_t* wrong_on_host_ = nullptr;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Buffers> make_cuda_buffers(int device, std::uint64_t bytes, bool flushes, const DeviceMemory& memory) {
  return std::make_unique<CudaBuffers>(device, bytes, flushes, memory);
}

}  // namespace ringbell::tools
