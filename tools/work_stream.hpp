// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The stream that perf puts calls on, and what stands around them there: a producer, a consumer, a graph, a clock. On
// CUDA kernels and events, on CPUs a HostStream and its thread's clock.
#ifndef RINGBELL_TOOLS_WORK_STREAM_HPP_
#define RINGBELL_TOOLS_WORK_STREAM_HPP_

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/ringbell.hpp"

namespace ringbell::tools {

/// One thread. All but the constructor throw ExitError(kExitEnvironment) with the driver's words.
class WorkStream {
 public:
  virtual ~WorkStream() = default;
  [[nodiscard]] virtual Stream get() noexcept = 0;
  /// Producer and consumer: a kernel that reads all of `from` and writes all of `to`. Regions do not overlap.
  virtual void copy(void* to, const void* from, std::uint64_t bytes) = 0;
  /// A kernel that does next to nothing.
  virtual void tick() = 0;
  /// What `body` puts on the stream becomes the graph `number`, from 0; one that was there is dropped.
  virtual void capture(int number, const std::function<void()>& body) = 0;
  virtual void replay(int number) = 0;
  /// Spins until everything on the stream has run.
  virtual void synchronize() = 0;
  /// Puts `body`'s work between two looks at the stream's own clock and waits for it. @return microseconds
  virtual double time_us(const std::function<void()>& body) = 0;
};

std::unique_ptr<WorkStream> make_cpu_work_stream();
/// On the current device. Loads its kernels.
std::unique_ptr<WorkStream> make_cuda_work_stream();

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_WORK_STREAM_HPP_
