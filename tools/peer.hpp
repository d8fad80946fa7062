// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What perf measures: one rank's side of a library that AllReduces, ringbell's own or one that it is compared with. How
// a call is timed and checked is perf_measure.hpp, the same for all.
#ifndef RINGBELL_TOOLS_PEER_HPP_
#define RINGBELL_TOOLS_PEER_HPP_

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"
#include "tools/issue.hpp"
#include "tools/work_stream.hpp"

namespace ringbell::tools {

struct PeerCall {
  const void* in;
  void* out;
  std::uint64_t count;  ///< elements
  DType dtype;
  ReduceOp op;
};

/// How the last call went, as far as the library tells.
struct PeerPath {
  std::string algorithm = "-";
  std::string protocol = "-";
  int channels = 0;               ///< 0: unknown
  std::uint32_t chunk_bytes = 0;  ///< 0: unknown
};

/// All ranks of a group make the same calls in the same order. One thread.
class Peer {
 public:
  virtual ~Peer() = default;

  /// Why the library has no such call, in words that follow its name; empty when it has.
  [[nodiscard]] virtual std::string refusal(DType /*dtype*/, ReduceOp /*op*/, std::uint64_t /*count*/) const {
    return "";
  }
  /// Why it cannot be driven in that way; empty when it can.
  [[nodiscard]] virtual std::string refusal(IssueWay way) const {
    return needs_stream(way) ? "its calls are not on streams" : "";
  }
  /// Before any call that needs a stream: this one, which outlives the peer's calls.
  virtual void use(WorkStream& /*work*/) {}
  /// Puts the call on that stream, or into its capture, and returns at once.
  virtual Status enqueue(const PeerCall& /*call*/) noexcept { return Status::kUnsupported; }
  /// The timed section of a call that runs behind what is on that stream: returns when `out` is complete.
  virtual Status call_after(const PeerCall& /*call*/) noexcept { return Status::kUnsupported; }
  /// After calls of enqueue() have run: has one failed?
  virtual Status enqueued() noexcept { return Status::kOk; }
  /// Can the result be compared bit for bit? Not if the library's rule for it rounds in other places than ours.
  [[nodiscard]] virtual bool exact(DType /*dtype*/, ReduceOp /*op*/, int /*ranks*/) const { return true; }
  /// Before calls with new arguments, not timed: what an application would do once, like capturing a graph.
  virtual void prepare(const PeerCall& /*call*/) {}
  /// The timed section: submits the call and returns when `out` is complete.
  virtual Status call(const PeerCall& call) noexcept = 0;
  /// An empty call, if the library has such a thing: brings back a worker that had left.
  virtual Status nop() noexcept { return Status::kOk; }
  /// What a failed call means. Its text is empty when standard error has it already.
  [[nodiscard]] virtual ExitError failure(Status status) const = 0;

  [[nodiscard]] virtual PeerPath path() const { return {}; }
  /// Launches of a worker so far, of a library that has one that stays.
  [[nodiscard]] virtual std::optional<std::uint64_t> launches() const { return std::nullopt; }
  /// Payload that this rank has published so far; nullopt: the library does not tell.
  [[nodiscard]] virtual std::optional<std::uint64_t> sent_bytes() const { return std::nullopt; }
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PEER_HPP_
