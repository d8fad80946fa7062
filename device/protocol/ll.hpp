// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// LL: the flag travels in every 8-byte word, so arrival needs no other message and no fence. Half of the bytes are
// flags.
#ifndef RINGBELL_DEVICE_PROTOCOL_LL_HPP_
#define RINGBELL_DEVICE_PROTOCOL_LL_HPP_

#include "device/protocol/connection.hpp"

namespace ringbell::device {

template <class M>
RINGBELL_TARGET RINGBELL_INLINE bool ll_line_ready(LlWords words, std::uint32_t flag) {
  const bool second = mutated<M>(Mutant::kOneLlFlag) || ll_word_ready(words.word[1], flag);
  return ll_word_ready(words.word[0], flag) && second;
}

/// wait_until, written out for a line: called, it costs this loop its registers (32 bytes spilled on sm_90). Waits for
/// `peer`'s line. @return what it holds; both flags are 0 if the operation must end: *status
template <class M, Group G>
RINGBELL_TARGET RINGBELL_INLINE LlWords take_ll_line(const WorkerContext& ctx, G& g, std::uint32_t peer,
                                                     const LlLine* line, std::uint32_t flag, Status* status) {
  LlWords words{};
  std::uint64_t wait = 0;
  while (!poll<M>([&] { return ll_line_ready<M>(words = M::read_ll(line), flag); })) {
    wait = look_again<M>(ctx, g, {WaitFor::kLine, peer, flag, &line->word[0]}, wait);
    *status = static_cast<Status>(wait & kWaitStatus);
    if (*status != Status::kOk) return LlWords{};
  }
  return words;
}

template <class M, Group G>
class LlProtocol : public Connection<M, G, wire_index(Protocol::kLL)> {
  using Base = Connection<M, G, wire_index(Protocol::kLL)>;
  using Base::ctx_;
  using Base::does;
  using Base::g_;
  using Base::progress_;
  using Base::step_;

 public:
  using Base::Base;
  using Base::wait_credit;

  /// Does the step. All lanes. @return the same to all lanes
  RINGBELL_TARGET Status move() {
    Status status = progress_.carried;
    if (does(Verb::kPass) && status == Status::kOk) status = this->wait_credit();
    if (mutated<M>(Mutant::kCreditBeforeRead) && does(Verb::kRecv)) this->return_credit(false);
    std::uint32_t at = g_.lane() * kPack;
    while (status == Status::kOk && !pass(&at)) status = wait_line(at);
    if (does(Verb::kPass)) this->count_sent();
    if (!does(Verb::kRecv)) {
      progress_.carried = status;
      return Status::kOk;
    }
    status = g_.agree(status, Edge::kSlotRead);
    if (step_.clean && status == Status::kOk) status = zero_slot();
    if (!mutated<M>(Mutant::kCreditBeforeRead) && status == Status::kOk) this->return_credit(step_.clean);
    return status;
  }

 private:
  static constexpr std::uint32_t kPack = kLlPayloadBytes;

  /// This lane's lines from byte *from_at on. @return false when one is late: *from_at is its byte. Stepping out before
  /// the long wait keeps the loop's registers out of it.
  RINGBELL_TARGET RINGBELL_INLINE bool pass(std::uint32_t* from_at) {
    const std::byte* const in = this->input();
    std::byte* const out = this->output();
    const auto* const from = reinterpret_cast<const LlLine*>(step_.from);
    auto* const to = reinterpret_cast<LlLine*>(step_.to);
    const std::uint32_t bytes = step_.bytes;
    const auto recv_flag = static_cast<std::uint32_t>(step_.recv_flag);
    const auto send_flag = static_cast<std::uint32_t>(step_.send_flag);
    const Verb verb = step_.verb;
    const ReduceRule rule = this->fold();
    std::uint32_t at = *from_at;
    for (; at < bytes; at += g_.lanes() * kPack) {
      const unsigned valid = valid_bytes(bytes, at, kPack);
      std::uint64_t pack = 0;
      if (has(verb, Verb::kOwn)) pack = load_pack8<M>(in + at, valid);
      if (has(verb, Verb::kRecv)) {
        const LlLine* line = &from[at / kPack];
        LlWords words{};
        if (!poll<M>([&] { return ll_line_ready<M>(words = M::read_ll(line), recv_flag); })) break;
        pack = has(verb, Verb::kOwn) ? reduce(ll_payload(words), pack, rule) : ll_payload(words);
      }
      if (has(verb, Verb::kPass)) M::publish_ll(&to[at / kPack], ll_pack(pack, send_flag));
      if (has(verb, Verb::kOut)) store_pack8<M>(out + at, pack, valid);
    }
    *from_at = at;
    return at >= bytes;
  }

  RINGBELL_TARGET Status wait_line(std::uint32_t at) {
    const LlLine* line = reinterpret_cast<const LlLine*>(step_.from) + at / kPack;
    const auto flag = static_cast<std::uint32_t>(step_.recv_flag);
    return wait_until<M>(ctx_, g_, {WaitFor::kLine, ctx_.ring_prev, flag, &line->word[0]},
                         [&] { return ll_line_ready<M>(M::read_ll(line), flag); });
  }

  /// Near the flag's wrap the consumed slot is zeroed before it is freed: a line that short messages leave untouched
  /// for 2^32 - 1 epochs would match again.
  RINGBELL_TARGET Status zero_slot() {
    auto* words = reinterpret_cast<std::uint64_t*>(step_.from);
    for (std::uint64_t i = g_.lane(); i < ctx_.layout.ll_slot_bytes() / 8; i += g_.lanes()) {
      M::store_relaxed(&words[i], 0);
    }
    return g_.agree(Status::kOk, Edge::kSlotRead);
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_PROTOCOL_LL_HPP_
