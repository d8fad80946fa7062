// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A stream for machines without a GPU: what is put into it runs in order on a thread of its own. Public. The CPU
// executor takes a HostStream* where the CUDA executor takes a cudaStream_t, so that a program whose calls are ordered
// by streams and graphs can be written and tested on CPUs.
#ifndef RINGBELL_HOST_STREAM_HPP_
#define RINGBELL_HOST_STREAM_HPP_

#include <functional>
#include <memory>
#include <vector>

#ifndef RINGBELL_API
#define RINGBELL_API __attribute__((visibility("default")))
#endif

namespace ringbell {

/// Work that was captured, to be replayed any number of times. A small value.
class HostGraph {
 public:
  HostGraph() = default;

 private:
  friend class HostStream;
  std::shared_ptr<const std::vector<std::function<void()>>> work_;
};

/// Thread-safe. Work must not throw, and must not call its own stream. In a child of fork, which has no thread for it,
/// a stream may only be destroyed.
class RINGBELL_API HostStream {
 public:
  /// @throws std::system_error when no thread can be had
  HostStream();
  /// Blocks until everything queued has run. Work of an unfinished capture is dropped.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Queues `work`, or adds it to the capture. Does not block. @throws std::bad_alloc
  void launch(std::function<void()> work);
  /// Blocks until everything queued so far has run.
  void synchronize();
  /// Everything queued so far has run. Does not block.
  [[nodiscard]] bool idle() const;

  /// From here to end_capture, what is launched is kept and not run.
  /// @throws std::logic_error when a capture is under way
  void begin_capture();
  /// @throws std::logic_error without begin_capture
  HostGraph end_capture();
  [[nodiscard]] bool capturing() const;
  /// Queues all work of `graph`, in order. @throws std::logic_error while a capture is under way
  void replay(const HostGraph& graph);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringbell

#endif  // RINGBELL_HOST_STREAM_HPP_
