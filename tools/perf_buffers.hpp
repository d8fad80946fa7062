// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank's input and output buffers, and what perf does with them where they live: fill, poison, compare, throw out
// of the cache. Which values is perf_values.hpp, how many sets of buffers perf_cache.hpp. On CUDA nothing here drains
// the device, so a resident worker stays.
#ifndef RINGBELL_TOOLS_PERF_BUFFERS_HPP_
#define RINGBELL_TOOLS_PERF_BUFFERS_HPP_

#include <cstdint>
#include <functional>
#include <memory>

#include "tools/perf_values.hpp"

namespace ringbell::tools {

/// Two regions, for inputs and for outputs. All calls return when the work is done. Throw ExitError(kExitEnvironment)
/// with the driver's words. One thread.
class Buffers {
 public:
  virtual ~Buffers() = default;
  [[nodiscard]] void* in() const noexcept { return in_ + offset_; }
  [[nodiscard]] void* out() const noexcept { return out_ + offset_; }
  /// in() and out() lie so far from their regions' begin from now on.
  void select(std::uint64_t offset) noexcept { offset_ = offset; }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept { return bytes_; }
  /// Writes `rank`'s input.
  virtual void fill(void* data, const ValueRule& rule, int rank, std::uint64_t count) = 0;
  virtual void poison(void* data, int byte, std::uint64_t bytes) = 0;
  /// @return elements that differ from the expected result in any bit
  [[nodiscard]] virtual std::uint64_t count_wrong(const void* data, const ValueRule& rule, std::uint64_t count) = 0;
  virtual void copy_to_host(void* host, const void* data, std::uint64_t bytes) = 0;
  virtual void copy_from_host(void* data, const void* host, std::uint64_t bytes) = 0;
  /// Overwrites scratch memory of twice the last-level cache: what was there before is out of it.
  virtual void flush() = 0;

 protected:
  void set_regions(void* in, void* out, std::uint64_t bytes) noexcept {
    in_ = static_cast<unsigned char*>(in);
    out_ = static_cast<unsigned char*>(out);
    bytes_ = bytes;
  }

 private:
  unsigned char* in_ = nullptr;
  unsigned char* out_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t offset_ = 0;
};

/// Where device memory for the regions comes from, for libraries that want their own. `allocate` throws ExitError.
struct DeviceMemory {
  std::function<void*(std::uint64_t bytes)> allocate;
  std::function<void(void*)> release;
};

/// @param bytes of each region  @param flushes flush() will be called: takes scratch memory
std::unique_ptr<Buffers> make_cpu_buffers(std::uint64_t bytes, bool flushes = false);
/// Loads every kernel used later. Makes `device` current on the calling thread. @param memory empty: cudaMalloc
std::unique_ptr<Buffers> make_cuda_buffers(int device, std::uint64_t bytes, bool flushes = false,
                                           const DeviceMemory& memory = {});

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_BUFFERS_HPP_
