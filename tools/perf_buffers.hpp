// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank's input and output buffers, and what perf does with them where they live: fill, poison, compare. Which
// values is perf_values.hpp. On CUDA nothing here drains the device, so a resident worker stays.
#ifndef RINGBELL_TOOLS_PERF_BUFFERS_HPP_
#define RINGBELL_TOOLS_PERF_BUFFERS_HPP_

#include <cstdint>
#include <memory>

#include "tools/perf_values.hpp"

namespace ringbell::tools {

/// All calls return when the work is done. Throw ExitError(kExitEnvironment) with the driver's words. One thread.
class Buffers {
 public:
  virtual ~Buffers() = default;
  [[nodiscard]] virtual void* in() noexcept = 0;
  [[nodiscard]] virtual void* out() noexcept = 0;
  /// Writes `rank`'s input.
  virtual void fill(void* data, const ValueRule& rule, int rank, std::uint64_t count) = 0;
  virtual void poison(void* data, int byte, std::uint64_t bytes) = 0;
  /// @return elements that differ from the expected result in any bit
  [[nodiscard]] virtual std::uint64_t count_wrong(const void* data, const ValueRule& rule, std::uint64_t count) = 0;
  virtual void copy_to_host(void* host, const void* data, std::uint64_t bytes) = 0;
  virtual void copy_from_host(void* data, const void* host, std::uint64_t bytes) = 0;
};

std::unique_ptr<Buffers> make_cpu_buffers(std::uint64_t bytes);
/// Loads every kernel used later. Makes `device` current on the calling thread.
std::unique_ptr<Buffers> make_cuda_buffers(int device, std::uint64_t bytes);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_BUFFERS_HPP_
