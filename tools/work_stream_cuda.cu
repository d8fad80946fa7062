// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "tools/exit_codes.hpp"
#include "tools/work_stream.hpp"

namespace ringbell::tools {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kMostBlocks = 264;  // two an SM of the largest GPUs
constexpr std::uint64_t kWordBytes = 16;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw ExitError(kExitEnvironment,
                  std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

// perf's regions are aligned to 256 bytes; what is left over behind the last word goes byte by byte.
__global__ void copy_kernel(unsigned char* to, const unsigned char* from, std::uint64_t bytes) {
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const std::uint64_t words = bytes / kWordBytes;
  for (std::uint64_t i = first; i < words; i += step) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  for (std::uint64_t i = words * kWordBytes + first; i < bytes; i += step) to[i] = from[i];
}

__global__ void tick_kernel(std::uint64_t* ticks) { ++*ticks; }

class CudaWorkStream final : public WorkStream {
 public:
  CudaWorkStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
    check(cudaMalloc(&scratch_, 2 * kWordBytes), "cudaMalloc");
    copy(scratch_ + kWordBytes / 8, scratch_, kWordBytes);
    tick();
    synchronize();
  }
  ~CudaWorkStream() override {
    for (const cudaGraphExec_t graph : graphs_) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
    cudaFree(scratch_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  CudaWorkStream(const CudaWorkStream&) = delete;
  CudaWorkStream& operator=(const CudaWorkStream&) = delete;

  Stream get() noexcept override { return stream_; }

  void copy(void* to, const void* from, std::uint64_t bytes) override {
    const std::uint64_t blocks = (bytes / kWordBytes + kThreads) / kThreads;
    copy_kernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream_>>>(
        static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes);
    check(cudaGetLastError(), "perf's producer kernel");
  }

  void tick() override {
    tick_kernel<<<1, 1, 0, stream_>>>(scratch_);
    check(cudaGetLastError(), "perf's tick kernel");
  }

  void capture(int number, const std::function<void()>& body) override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      body();
    } catch (...) {
      if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    const auto index = static_cast<std::size_t>(number);
    if (graphs_.size() <= index) graphs_.resize(index + 1, nullptr);
    if (graphs_[index] != nullptr) check(cudaGraphExecDestroy(graphs_[index]), "cudaGraphExecDestroy");
    graphs_[index] = nullptr;
    check(cudaGraphInstantiate(&graphs_[index], graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(cudaGraphUpload(graphs_[index], stream_), "cudaGraphUpload");
  }

  void replay(int number) override {
    check(cudaGraphLaunch(graphs_[static_cast<std::size_t>(number)], stream_), "cudaGraphLaunch");
  }

  void synchronize() override {
    cudaError_t error = cudaErrorNotReady;
    while (error == cudaErrorNotReady) error = cudaStreamQuery(stream_);
    check(error, "perf's stream");
  }

  double time_us(const std::function<void()>& body) override {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    body();
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    synchronize();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::uint64_t* scratch_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

std::unique_ptr<WorkStream> make_cuda_work_stream() { return std::make_unique<CudaWorkStream>(); }

}  // namespace ringbell::tools
