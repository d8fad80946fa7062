// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One-shot over LL: each lane stores its lines into every peer's window, then takes the peers' lines and folds them in
// rank order. No barrier and no fence: a line is sent, received and reused by the same lane.
#ifndef RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL_HPP_
#define RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL_HPP_

#include "device/direct/slots.hpp"
#include "device/protocol/ll.hpp"

namespace ringbell::device {

/// This lane's line of a chunk, to every peer.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE void send_ll_line(const WorkerContext& ctx, std::uint32_t offset, LlWords words) {
  RINGBELL_ROLLED
  for (std::uint32_t at = 1; at < ctx.world; ++at) {
    M::publish_ll(reinterpret_cast<LlLine*>(ctx.window[peer_at(ctx, at)] + offset), words);
  }
}

template <class M, Group G>
class OneShotLl : public OneShotWire<M, G, wire_index(Protocol::kLL)> {
  using Base = OneShotWire<M, G, wire_index(Protocol::kLL)>;
  using Base::ctx_;
  using Base::exchange_;
  using Base::g_;

 public:
  static constexpr std::uint32_t kPack = kLlPayloadBytes;
  static constexpr std::uint32_t kLinesPerPack = sizeof(LlLine) / kLlPayloadBytes;

  using Base::Base;

  // Loops go by teams, and a lane without a line goes with its team: lanes that leave a loop early would run ahead, and
  // their instructions, up to the next barrier, come before those of the lanes that have lines (1 us on an H200).

  /// Waits for nobody.
  RINGBELL_TARGET RINGBELL_INLINE void send() {
    const Operation& op = this->op();
    const std::byte* const in = input_of(op, exchange_);
    const std::uint32_t bytes = bytes_of(op, exchange_);
    const std::uint32_t mine = this->slots().mine;
    const std::uint32_t flag = ll_flag(this->epoch());
    for (std::uint32_t of_team = first_of_team(); of_team < bytes; of_team += g_.lanes() * kPack) {
      const std::uint32_t at = of_team + g_.team_lane() * kPack;
      const unsigned valid = valid_bytes(bytes, at, kPack);
      std::uint64_t pack = 0;
      if (valid != 0) pack = load_pack8<M>(in + at, valid);
      if (valid != 0) send_ll_line<M>(ctx_, mine + at * kLinesPerPack, ll_pack(pack, flag));
    }
  }

  /// Folds what arrives where folds_inline; else it only waits for it.
  /// @param status of this lane alone, as what it returns
  RINGBELL_TARGET RINGBELL_INLINE Status receive(Status status) {
    std::uint32_t of_team = first_of_team();
    while (status == Status::kOk && !fold_lines(&of_team)) {
      const std::uint32_t at = of_team + g_.team_lane() * kPack;
      if (at < bytes_of(this->op(), exchange_)) status = wait_lines(at);
    }
    return status;
  }

 private:
  RINGBELL_TARGET const std::byte* line_of(const DirectSlots& slots, std::uint32_t at, std::uint32_t source) const {
    return ctx_.window[ctx_.rank] + slots.first + source * slots.stride + at * kLinesPerPack;
  }

  /// Byte of the first line of this lane's team.
  RINGBELL_TARGET std::uint32_t first_of_team() const { return (g_.lane() - g_.team_lane()) * kPack; }

  /// The team's lines from byte *from on. @return false when one of this lane's is late: the team's first is at *from.
  /// Stepping out before the long wait keeps the loop's registers out of it.
  RINGBELL_TARGET RINGBELL_INLINE bool fold_lines(std::uint32_t* from) {
    const Operation& op = this->op();
    const std::byte* const in = input_of(op, exchange_);
    std::byte* const out = output_of(op, exchange_);
    const std::uint32_t bytes = bytes_of(op, exchange_);
    const DType dtype = op.command.dtype;
    const bool folds = folds_inline(op.command, ctx_.world);
    const DirectSlots slots = this->slots();
    const std::uint32_t flag = ll_flag(this->epoch());
    std::uint32_t of_team = *from;
    for (; of_team < bytes; of_team += g_.lanes() * kPack) {
      const std::uint32_t at = of_team + g_.team_lane() * kPack;
      const unsigned valid = valid_bytes(bytes, at, kPack);
      std::uint64_t own = 0;
      if (valid != 0) own = load_pack8<M>(in + at, valid);
      std::uint64_t folded = 0;
      RINGBELL_ROLLED
      for (std::uint32_t source = 0; source < ctx_.world; ++source) {
        std::uint64_t pack = own;
        if (source != ctx_.rank) {
          const auto* const line = reinterpret_cast<const LlLine*>(line_of(slots, at, source));
          LlWords words{};
          const auto ready = [&] {
            if (valid == 0) return true;
            return ll_line_ready<M>(words = M::read_ll(line), flag);
          };
          if (!poll<M>(ready)) {
            *from = of_team;
            return false;
          }
          pack = ll_payload(words);
        }
        if (folds) folded = source == 0 ? pack : add_inlined(folded, pack, dtype);
      }
      if (folds && valid != 0) store_pack8<M>(out + at, folded, valid);
    }
    return true;
  }

  /// Waits for every rank's line at byte `at`.
  RINGBELL_TARGET RINGBELL_INLINE Status wait_lines(std::uint32_t at) {
    Status status = Status::kOk;
    RINGBELL_ROLLED
    for (std::uint32_t source = 0; source < ctx_.world && status == Status::kOk; ++source) {
      if (source == ctx_.rank) continue;
      const DirectSlots slots = this->slots();
      const auto* const line = reinterpret_cast<const LlLine*>(line_of(slots, at, source));
      const std::uint32_t flag = ll_flag(this->epoch());
      status = wait_until<M>(ctx_, g_, {WaitFor::kLine, source, flag, &line->word[0]},
                             [&] { return ll_line_ready<M>(M::read_ll(line), flag); });
    }
    return status;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_DIRECT_ONE_SHOT_LL_HPP_
