// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The ring connection of one wire format: which slot is next in each direction, and its credits. The formats build on it.
#ifndef RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_
#define RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_

#include "device/math/reduce.hpp"
#include "device/mem/user_memory.hpp"
#include "device/ring/schedule.hpp"
#include "device/worker/wait.hpp"

namespace ringbell::device {

/// Free-running counters: true while fewer than `slots` filled slots wait to be freed. Signed, because a lane that has no
/// line in this slot may look only when the receiver has freed it already: `consumed` is then ahead of `sent`.
RINGBELL_HD constexpr bool has_room(std::uint64_t sent, std::uint64_t consumed, std::uint64_t slots) {
  return static_cast<std::int64_t>(sent - consumed) < static_cast<std::int64_t>(slots);
}
static_assert(has_room(2, ~0ull, 8) && !has_room(7, ~0ull, 8) && !has_room(5, ~0ull - 2, 8) && has_room(7, 8, 2));

template <class M, Group G>
class Connection {
 public:
  RINGBELL_TARGET Connection(const WorkerContext& ctx, G& g, unsigned wire)
      : ctx_(ctx), g_(g), wire_(wire), epochs_(g.shared().persistent.epochs[wire]) {}

  /// Lane 0 keeps the counters for the next operation. Between the operation's last barrier and the next one's first.
  RINGBELL_TARGET void save() {
    if (g_.lane() == 0) g_.shared().persistent.epochs[wire_] = epochs_;
  }

 protected:
  /// Every lane that will store waits for room in the next rank's slot by itself: the credit is local memory.
  RINGBELL_TARGET Status wait_credit() {
    const auto* line =
        reinterpret_cast<const CreditLine*>(ctx_.window[ctx_.rank] + ctx_.layout.credit_offset(0, wire_));
    const std::uint64_t sent = epochs_.send;
    const std::uint64_t slots = ctx_.layout.slots;
    if (has_room(sent, credit_seen_, slots) && credit_known_) return Status::kOk;
    return wait_until<M>(ctx_, g_, {WaitFor::kCredit, ctx_.ring_next, sent + 1 - slots, &line->consumed}, [&] {
      credit_seen_ = M::load_acquire(&line->consumed, Edge::kCredit);
      credit_known_ = true;
      return has_room(sent, credit_seen_, slots);
    });
  }

  /// Frees the slot just read, after a barrier that every reading lane has passed.
  RINGBELL_TARGET void return_credit(bool cleaned) {
    if (g_.lane() != 0) return;
    auto* line =
        reinterpret_cast<CreditLine*>(ctx_.window[ctx_.ring_prev] + ctx_.layout.credit_offset(0, wire_));
    if (cleaned) {
      M::store_release(&line->consumed, epochs_.recv + 1, Edge::kCredit);
    } else {
      // Only loads must come first: their values were used before the barrier, and no store of the slot is ours.
      M::store_after_reads(&line->consumed, epochs_.recv + 1, Edge::kCredit);
    }
  }

  RINGBELL_TARGET std::byte* send_slot() const {
    return ctx_.window[ctx_.ring_next] + ctx_.layout.slot(wire_, 0, epochs_.send);
  }
  RINGBELL_TARGET const std::byte* recv_slot() const {
    return ctx_.window[ctx_.rank] + ctx_.layout.slot(wire_, 0, epochs_.recv);
  }
  RINGBELL_TARGET void count_published(std::uint64_t bytes) {
    if (g_.lane() == 0) g_.shared().published_bytes += bytes;
  }

  const WorkerContext& ctx_;
  G& g_;
  const unsigned wire_;
  Epochs epochs_;
  // A step without a barrier leaves its status to the next step that has one, so that all lanes stop together.
  Status carried_ = Status::kOk;
  std::uint64_t credit_seen_ = 0;
  bool credit_known_ = false;
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_CONNECTION_HPP_
