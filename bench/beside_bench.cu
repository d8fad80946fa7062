// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// beside_bench: what ringbell's worker and other kernels on its GPU cost each other. One rank, world 1: what counts is
// the worker on its SM, not the message.
//   products   a bf16 product M x 8192 x 8192 (cuBLAS, opened at run time) without ringbell, beside a worker that is
//              held and called every 50 us, and launched right after wait() with default parking, with last_of_burst
//              and inside ParkedScope
//   calls      an empty call beside back-to-back kernels of 1 and 10 ms that fill the GPU
// usage: beside_bench [products|calls|all]    tables on standard output, microseconds; exit 3: no GPU or no cuBLAS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "runtime/ringbell.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using ringbell::Communicator;
using ringbell::Status;

constexpr int kExitEnvironment = 3;
constexpr int kSide = 8192;
constexpr int kRows[] = {16, 64, 512, 2048, 8192};
constexpr int kRounds = 5;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
void check(Status status, const Communicator& comm) {
  if (status != Status::kOk) throw std::runtime_error(std::string(status_name(status)) + ": " + comm.last_error());
}
void wait(Communicator& comm, const ringbell::Ticket& ticket) {
  check(ticket.status == Status::kOk ? comm.wait(ticket) : ticket.status, comm);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}
double since_us(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// ---- cuBLAS, as its documentation gives it
// ---------------------------------------------------------------------------

/// C = A B in bf16 with float32 accumulation, on a stream of its own.
class Product {
 public:
  Product() {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW);
    }
    if (library == nullptr) throw std::runtime_error("no libcublas.so.13 or .12: set LD_LIBRARY_PATH to its folder");
    const auto create = find<int (*)(void**)>(library, "cublasCreate_v2");
    const auto set_stream = find<int (*)(void*, cudaStream_t)>(library, "cublasSetStream_v2");
    multiply_ = find<Multiply>(library, "cublasGemmEx");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
    if (create(&handle_) != 0 || set_stream(handle_, stream_) != 0) throw std::runtime_error("cublasCreate failed");
    constexpr std::size_t kBytes = std::size_t{2} * kSide * kSide;
    for (void** matrix : {&a_, &b_, &c_}) {
      check(cudaMalloc(matrix, kBytes), "cudaMalloc");
      check(cudaMemsetAsync(*matrix, 0x3c, kBytes, stream_), "cudaMemsetAsync");  // small, and no zeros
    }
    for (const int rows : kRows) put(rows);  // loads its kernels
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  void put(int rows) {
    constexpr int kNoTranspose = 0;
    constexpr int kBf16 = 14;       // CUDA_R_16BF
    constexpr int kFloatMath = 68;  // CUBLAS_COMPUTE_32F
    constexpr int kOwnChoice = -1;  // CUBLAS_GEMM_DEFAULT
    const float one = 1;
    const float zero = 0;
    const int status = multiply_(handle_, kNoTranspose, kNoTranspose, kSide, rows, kSide, &one, a_, kBf16, kSide, b_,
                                 kBf16, kSide, &zero, c_, kBf16, kSide, kFloatMath, kOwnChoice);
    if (status != 0) throw std::runtime_error("cublasGemmEx answers " + std::to_string(status));
  }
  /// Of one of `count` products back to back, by events.
  double time_us(int rows, int count) {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    for (int i = 0; i < count; ++i) put(rows);
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    return elapsed_us() / count;
  }
  double elapsed_us() {
    cudaError_t error = cudaErrorNotReady;
    while (error == cudaErrorNotReady) error = cudaEventQuery(end_);
    check(error, "the product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  using Multiply = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                           const void*, void*, int, int, int, int);
  template <class Function>
  static Function find(void* library, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("cuBLAS has no ") + name);
    return reinterpret_cast<Function>(symbol);
  }

  void* handle_ = nullptr;
  Multiply multiply_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* a_ = nullptr;
  void* b_ = nullptr;
  void* c_ = nullptr;
};

/// Held, and called every 50 us, for its lifetime: the worker runs, as launches() says before and after.
class Busy {
 public:
  explicit Busy(Communicator& comm) : comm_(comm) {
    check(comm_.hold(), comm_);
    wait(comm_, comm_.nop());
    launches_ = comm_.stats().launches;
    thread_ = std::thread([this] {
      while (!stop_) {
        const Clock::time_point begin = Clock::now();
        const ringbell::Ticket ticket = comm_.nop();
        if (ticket.status == Status::kOk) (void)comm_.wait(ticket);
        while (!stop_ && since_us(begin) < 50) {
        }
      }
    });
  }
  ~Busy() {
    stop_ = true;
    thread_.join();
    if (comm_.stats().launches != launches_) std::puts("WARNING: the worker was launched again while it was held");
    (void)comm_.release();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator& comm_;
  std::uint64_t launches_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void products(Communicator& comm) {
  Product product;
  // Each way, in turns with the others: the time of one product.
  struct Way {
    const char* name;
    std::function<double(int rows, int count)> time_us;
  };
  const auto right_after = [&](int rows, int count, const std::function<void()>& call) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      call();
      times.push_back(product.time_us(rows, 1));
    }
    return quantile(times, 0.5);
  };
  const auto burst_end = [&] {
    ringbell::CallOptions options;
    options.last_of_burst = true;
    wait(comm, comm.all_reduce(nullptr, nullptr, 0, ringbell::DType::kFloat32, ringbell::ReduceOp::kSum, options));
  };
  const Way ways[] = {
      {"no call", [&](int rows, int count) { return right_after(rows, count, [] {}); }},
      {"right after wait()",
       [&](int rows, int count) { return right_after(rows, count, [&] { wait(comm, comm.nop()); }); }},
      {"after last_of_burst", [&](int rows, int count) { return right_after(rows, count, burst_end); }},
      {"in ParkedScope",
       [&](int rows, int count) {
         wait(comm, comm.nop());
         const ringbell::ParkedScope parked(comm);
         check(parked.status(), comm);
         return right_after(rows, count, [] {});
       }},
      {"back to back, no worker", [&](int rows, int count) { return product.time_us(rows, count); }},
      {"back to back, beside a held worker",
       [&](int rows, int count) {
         const Busy busy(comm);
         return product.time_us(rows, count);
       }},
  };
  std::puts("bf16 product M x 8192 x 8192, us: median of 5 rounds; in brackets over the first of its kind");
  std::printf("%-36s", "M");
  for (const int rows : kRows) std::printf("%18d", rows);
  std::puts("");
  std::vector<std::vector<double>> medians;
  for (const Way& way : ways) {
    medians.emplace_back();
    const std::size_t index = medians.size() - 1;
    std::printf("%-36s", way.name);
    for (std::size_t m = 0; m < std::size(kRows); ++m) {
      const int count = kRows[m] <= 64 ? 200 : kRows[m] <= 512 ? 100 : 20;
      std::vector<double> rounds;
      for (int round = 0; round < kRounds; ++round) rounds.push_back(way.time_us(kRows[m], count));
      medians[index].push_back(quantile(rounds, 0.5));
      const double base = medians[index < 4 ? 0 : 4][m];
      std::printf("%10.1f (%5.3f)", medians[index][m], medians[index][m] / base);
    }
    std::puts("");
  }
}

__global__ void fill_gpu(std::uint64_t us) {
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < us * 1000);
}

void calls(Communicator& comm) {
  int device = 0;
  int processors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  std::puts("an empty call, one every 300 us, beside back-to-back kernels that fill the GPU, us");
  std::printf("%-12s%12s%12s%12s%12s%12s\n", "kernels of", "p50", "p99", "p99.9", "max", "launches");
  for (const std::uint64_t us : {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{10000}}) {
    std::atomic<bool> stop{false};
    std::thread filler([&] {
      if (us == 0 || cudaSetDevice(device) != cudaSuccess) return;
      while (!stop) {
        for (int i = 0; i < 2; ++i) fill_gpu<<<4 * static_cast<unsigned>(processors), 512, 0, stream>>>(us);
        if (cudaStreamSynchronize(stream) != cudaSuccess) return;
      }
    });
    std::vector<double> times;
    const std::uint64_t before = comm.stats().launches;
    for (int i = 0; i < 3000; ++i) {
      const Clock::time_point begin = Clock::now();
      wait(comm, comm.nop());
      times.push_back(since_us(begin));
      while (since_us(begin) < 300) {
      }
    }
    stop = true;
    filler.join();
    std::printf("%-12s%12.1f%12.1f%12.1f%12.1f%12llu\n",
                us == 0      ? "none"
                : us == 1000 ? "1 ms"
                             : "10 ms",
                quantile(times, 0.5), quantile(times, 0.99), quantile(times, 0.999), quantile(times, 1),
                static_cast<unsigned long long>(comm.stats().launches - before));
  }
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 2 || (what != "products" && what != "calls" && what != "all")) {
    std::fprintf(stderr, "usage: beside_bench [products|calls|all]\n");
    return 64;
  }
  try {
    ringbell::Config config;
    config.device = ringbell::DeviceKind::kCuda;
    config.device_ordinal = 0;
    check(cudaSetDevice(0), "cudaSetDevice");
    Communicator comm(ringbell::unique_id_create(), 0, 1, config);
    std::printf("# %s\n", comm.describe().c_str());
    if (what != "calls") products(comm);
    if (what != "products") calls(comm);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "beside_bench: %s\n", error.what());
    return kExitEnvironment;
  }
}
