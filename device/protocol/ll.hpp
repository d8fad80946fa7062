// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// LL: the flag travels in every 8-byte word, so arrival needs no other message and no fence. Half of the bytes are flags.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL_HPP_

#include "device/protocol/connection.hpp"

namespace ringbell::device {

template <class M, Group G>
class LlProtocol : public Connection<M, G> {
  using Base = Connection<M, G>;
  using Base::carried_;
  using Base::ctx_;
  using Base::epochs_;
  using Base::g_;

 public:
  RINGBELL_TARGET LlProtocol(const WorkerContext& ctx, G& g) : Base(ctx, g, wire_index(Protocol::kLL)) {}

  /// One ring step over one chunk: take it from the previous rank (kRecv), fold in or start from the own input (kOwn),
  /// keep it in `out` (kOut), pass it to the next rank (kSend).
  template <bool kRecv, bool kOwn, bool kOut, bool kSend>
  RINGBELL_TARGET Status move(const std::byte* in, std::byte* out, ByteRange range, ReduceRule rule) {
    const std::uint64_t lines = (range.bytes + kLlPayloadBytes - 1) / kLlPayloadBytes;
    const auto* from = reinterpret_cast<const LlLine*>(this->recv_slot());
    auto* to = reinterpret_cast<LlLine*>(this->send_slot());
    Status status = carried_;
    if constexpr (kSend) {
      if (status == Status::kOk) status = this->wait_credit();
    }
    if constexpr (kRecv && mutated<M>(Mutant::kCreditBeforeRead)) this->return_credit(false);
    for (std::uint64_t line = g_.lane(); line < lines && status == Status::kOk; line += g_.lanes()) {
      const std::uint64_t at = range.begin + line * kLlPayloadBytes;
      const unsigned valid = valid_bytes(range.bytes, line * kLlPayloadBytes, kLlPayloadBytes);
      std::uint64_t pack = 0;
      if constexpr (kOwn) pack = load_pack8<M>(in + at, valid);
      if constexpr (kRecv) {
        std::uint64_t arrived = 0;
        status = recv_line(&from[line], &arrived);
        if (status != Status::kOk) break;
        pack = kOwn ? reduce(arrived, pack, rule) : arrived;
      }
      if constexpr (kOut) store_pack8<M>(out + at, pack, valid);
      if constexpr (kSend) M::publish_ll(&to[line], ll_pack(pack, ll_flag(epochs_.send)));
    }
    if constexpr (kSend) {
      this->count_published(range.bytes);
      ++epochs_.send;
    }
    if constexpr (kRecv) {
      status = g_.agree(status, Edge::kSlotRead);
      if (status == Status::kOk) status = free_slot();
      ++epochs_.recv;
    }
    carried_ = status;
    return kRecv ? status : Status::kOk;
  }

 private:
  RINGBELL_TARGET RINGBELL_INLINE Status recv_line(const LlLine* line, std::uint64_t* arrived) {
    const std::uint32_t flag = ll_flag(epochs_.recv);
    LlWords words{};
    const Status status =
        wait_until<M>(ctx_, g_, {WaitFor::kLine, ctx_.ring_prev, flag, &line->word[0]}, [&] {
          words = M::read_ll(line);
          const bool second = mutated<M>(Mutant::kOneLlFlag) || ll_word_ready(words.word[1], flag);
          return ll_word_ready(words.word[0], flag) && second;
        });
    *arrived = ll_payload(words);
    return status;
  }

  /// Near the flag's wrap the consumed slot is zeroed before it is freed: a line that short messages leave untouched
  /// for 2^32 - 1 epochs would match again.
  RINGBELL_TARGET Status free_slot() {
    const bool clean = ll_must_clean(epochs_.recv, ctx_.layout.slots);
    Status status = Status::kOk;
    if (clean) {
      auto* words = reinterpret_cast<std::uint64_t*>(ctx_.window[ctx_.rank] +
                                                     ctx_.layout.slot(this->wire_, 0, epochs_.recv));
      for (std::uint64_t i = g_.lane(); i < ctx_.layout.ll_slot_bytes() / 8; i += g_.lanes()) {
        M::store_relaxed(&words[i], 0);
      }
      status = g_.agree(status, Edge::kSlotRead);
    }
    if constexpr (!mutated<M>(Mutant::kCreditBeforeRead)) this->return_credit(clean);
    return status;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL_HPP_
