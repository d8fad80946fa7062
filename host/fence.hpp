// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The two-phase fence of set-up (all written, then all opened) and the bounded one of teardown. Not for the data path.
//
//   fill card, zero window -> publish(kWritten) -> wait_all(kWritten) -> open peers' windows -> publish(kOpened)
//   -> wait_all(kOpened) -> run -> close imports -> publish(kClosed) -> try_wait_all(kClosed) -> free own window
#ifndef RINGBELL_HOST_FENCE_HPP_
#define RINGBELL_HOST_FENCE_HPP_

#include <string>
#include <string_view>

#include "device/ringbell_types.hpp"
#include "host/liveness.hpp"
#include "host/segment.hpp"

namespace ringbell::host {

/// For the thread that sets up or tears down a rank. Waits spin for some microseconds, then sleep; they tick the
/// heartbeat while they wait.
class Fence {
 public:
  /// Both must outlive this.
  Fence(Segment& segment, Liveness& liveness) noexcept : segment_(segment), liveness_(liveness) {}

  /// Makes everything written before visible to whoever waits for `phase`. Rank 0 publishing kOpened removes the
  /// segment's name first: it has seen all ranks kWritten, so nobody needs the name, and whoever gets past
  /// wait_all(kOpened) may start the next session under the same name.
  void publish(Phase phase) noexcept;

  /// Returns when every rank has published `phase` or a later one.
  /// @throws Error kTimeout at the deadline: lists the absent ranks and how far each came. kPeerLost: a rank died,
  ///   also one that had published `phase`.
  ///   kAborted: "rank 2 failed to start: <its text>". kInvalidArgument: a rank was claimed twice, or one that
  ///   disagrees was refused. This rank then publishes its own failure, so that the others end too.
  void wait_all(Phase phase, Deadline deadline);
  /// As wait_all without throwing or publishing; `why` (may be null) gets the text. For teardown: ranks that are gone
  /// or failed count as closed when `phase` is kClosed.
  Status try_wait_all(Phase phase, Deadline deadline, std::string* why) noexcept;

  /// Tells every other rank that this one cannot start. Call it from the handler around set-up.
  void fail(std::string_view text) noexcept { segment_.publish_failure(text); }

 private:
  Segment& segment_;
  Liveness& liveness_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_FENCE_HPP_
