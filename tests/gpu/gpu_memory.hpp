// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// User buffers of GPU tests: 64 guard bytes on both sides, poison, any shift, as HostBuffer; a stream that waits for
// nobody else's work; and main() of a GPU test. Host code over the CUDA runtime; kernels are the tests'.
#ifndef RINGBELL_TESTS_GPU_GPU_MEMORY_HPP_
#define RINGBELL_TESTS_GPU_GPU_MEMORY_HPP_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/support/buffers.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {

/// Throws for anything but cudaSuccess.
inline void cuda_ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

/// The driver's own function: tests do not link libcuda.
template <class Function>
Function* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  cuda_ok(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
#else
  cuda_ok(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result), name);
#endif
  require(result == cudaDriverEntryPointSuccess, std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

/// Visible GPUs; makes no context.
inline int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

/// True when processes really run side by side on one GPU.
inline bool mps_runs() {
  int enabled = 0;
  const auto attribute = static_cast<cudaDeviceAttr>(133);  // cudaDevAttrMpsEnabled, younger than the oldest toolkit
  const bool known = cudaDeviceGetAttribute(&enabled, attribute, 0) == cudaSuccess;
  (void)cudaGetLastError();
  return known && enabled != 0;
}

/// True where two ranks need not take turns of milliseconds on one GPU.
inline bool side_by_side() { return gpu_count() >= 2 || mps_runs(); }
/// Two ranks where two can run side by side, else one. Says so.
inline int side_by_side_world() {
  if (side_by_side()) return 2;
  std::puts("one GPU and no MPS: processes would take turns of milliseconds, so this runs with a world of 1");
  return 1;
}

/// A non-blocking stream: neither waits for the default stream nor makes it wait.
class Stream {
 public:
  Stream() { cuda_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void sync() const { cuda_ok(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  /// Any direction; returns when the bytes are there. A resident kernel reads without asking the stream, so the end of
  /// a copy must have been seen before a call.
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    cuda_ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
    sync();
  }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Plain device memory of T.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    cuda_ok(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)), "cudaMalloc");
  }
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// Page-locked host memory of T.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(std::size_t size) : size_(size) {
    cuda_ok(cudaHostAlloc(reinterpret_cast<void**>(&data_), size * sizeof(T), cudaHostAllocDefault), "cudaHostAlloc");
  }
  ~PinnedArray() { (void)cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// One allocation of device memory that is laid out again for every case, so that old values are there to be found.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t capacity) : memory_(capacity + kSpare), host_(capacity + kSpare) {
    cuda_ok(cudaMemset(memory_.get(), 0x5a, memory_.size()), "cudaMemset");
    cuda_ok(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  void reset(std::size_t bytes, std::size_t shift = 0) {
    require(bytes + shift + 2 * kGuardBytes <= memory_.size(), "a case is larger than its buffer");
    begin_ = kGuardBytes + shift;  // allocations begin at a multiple of 256
    bytes_ = bytes;
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      host_[i] = guard_byte(i);
      host_[kGuardBytes + i] = guard_byte(i + 7);
    }
    stream_.copy(memory_.get() + begin_ - kGuardBytes, host_.data(), kGuardBytes);
    stream_.copy(memory_.get() + begin_ + bytes_, host_.data() + kGuardBytes, kGuardBytes);
  }
  [[nodiscard]] void* data() const { return memory_.get() + begin_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const Stream& stream() const { return stream_; }
  void write(const void* from) { stream_.copy(data(), from, bytes_); }
  void read(void* to) { stream_.copy(to, data(), bytes_); }
  void poison() {
    for (std::size_t i = 0; i < bytes_; ++i) host_[i] = poison_byte(i);
    stream_.copy(data(), host_.data(), bytes_);
  }
  /// "" or which guard byte was written.
  [[nodiscard]] std::string damage() {
    std::byte guards[2 * kGuardBytes];
    stream_.copy(guards, memory_.get() + begin_ - kGuardBytes, kGuardBytes);
    stream_.copy(guards + kGuardBytes, memory_.get() + begin_ + bytes_, kGuardBytes);
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (guards[i] != guard_byte(i)) return text(kGuardBytes - i, "before");
      if (guards[kGuardBytes + i] != guard_byte(i + 7)) return text(i, "after");
    }
    return "";
  }

 private:
  static constexpr std::size_t kSpare = 2 * kGuardBytes + 64;
  static std::string text(std::size_t distance, const char* side) {
    return "guard byte " + std::to_string(distance) + " " + side + " the buffer was written";
  }

  DeviceArray<std::byte> memory_;
  std::vector<std::byte> host_;
  Stream stream_;
  std::size_t begin_ = kGuardBytes;
  std::size_t bytes_ = 0;
};

/// main() of a GPU test: a rank's program, or all tests; 77 without a GPU.
inline int gpu_test_main(int argc, char** argv) {
  int code = 0;
  if (ran_as_rank(argc, argv, &code)) return code;
  testing::InitGoogleTest(&argc, argv);
  if (gpu_count() == 0 && !testing::GTEST_FLAG(list_tests)) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return RUN_ALL_TESTS();
}

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_GPU_GPU_MEMORY_HPP_
