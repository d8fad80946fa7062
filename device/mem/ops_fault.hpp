// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The fault decorator: memory operations whose n-th publish of window data goes wrong on purpose, so that the checks
// after it can be seen to fail. Instantiated beside the plain operations; used only when RINGBELL_FAULT is set.
#ifndef RINGBELL_DEVICE_MEM_OPS_FAULT_HPP_
#define RINGBELL_DEVICE_MEM_OPS_FAULT_HPP_

#include <type_traits>

#include "device/mem/ops.hpp"

namespace ringbell::device {

enum class FaultKind : std::uint8_t {
  kNone,
  kFlip,   // one bit of the payload is inverted; a flag never
  kDrop,   // not published
  kDelay,  // published after delay_ns
  kTear,   // the first 8 bytes at once, the others after delay_ns
};

/// What goes wrong in one rank's worker. memory: where the worker runs. writer: `published` the worker, the rest nobody
/// while it runs. A publish is one publish_ll, publish_quad or publish_flag_quad, counted over launches and lanes.
struct FaultPlan {
  FaultKind kind;
  std::uint64_t publish;  // which one, from 1; 0: every one
  std::uint64_t delay_ns;
  std::uint64_t published;  // so far
};
static_assert(std::is_trivially_copyable_v<FaultPlan>);

/// @tparam Hook where a target keeps the plan; static functions:
///   FaultPlan* plan()                          of the worker that asks; null: nothing goes wrong
///   std::uint64_t count_publish(FaultPlan&)    adds one to `published`, returns the sum; lanes may call it at once
template <class M, class Hook>
struct FaultOps : M {
  RINGBELL_TARGET static void publish_ll(LlLine* line, LlWords words) {
    const FaultPlan* plan = due();
    if (plan == nullptr) return M::publish_ll(line, words);
    switch (plan->kind) {
      case FaultKind::kDrop: return;
      case FaultKind::kFlip: words.word[0] ^= kFlipped; break;
      case FaultKind::kTear: M::store_relaxed(&line->word[0], words.word[0]); [[fallthrough]];
      case FaultKind::kDelay: linger(plan->delay_ns); break;
      case FaultKind::kNone: break;
    }
    M::publish_ll(line, words);
  }

  RINGBELL_TARGET static void publish_quad(Quad* to, Quad quad) {
    if (spoil(to, quad)) M::publish_quad(to, quad);
  }

  RINGBELL_TARGET static void publish_flag_quad(Quad* to, Quad quad, Edge edge) {
    if (spoil(to, quad)) M::publish_flag_quad(to, quad, edge);
  }

 private:
  // Bit 6: payload of the first byte, so that the shortest message has it, and no small change in any element type.
  static constexpr std::uint64_t kFlipped = 1u << 6;

  /// The plan, if this publish is meant.
  RINGBELL_TARGET static const FaultPlan* due() {
    FaultPlan* plan = Hook::plan();
    if (plan == nullptr) return nullptr;
    const std::uint64_t number = Hook::count_publish(*plan);
    return plan->publish == 0 || plan->publish == number ? plan : nullptr;
  }
  RINGBELL_TARGET static void linger(std::uint64_t delay_ns) {
    const std::uint64_t until = M::now_ns() + delay_ns;
    for (unsigned polls = 1; M::now_ns() < until; ++polls) M::pause(polls);
  }
  /// @return false if the quad must not be published
  RINGBELL_TARGET static bool spoil(Quad* to, Quad& quad) {
    const FaultPlan* plan = due();
    if (plan == nullptr) return true;
    if (plan->kind == FaultKind::kFlip) quad.lo ^= kFlipped;
    if (plan->kind == FaultKind::kTear) M::store_relaxed(&to->lo, quad.lo);
    if (plan->kind == FaultKind::kTear || plan->kind == FaultKind::kDelay) linger(plan->delay_ns);
    return plan->kind != FaultKind::kDrop;
  }
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_OPS_FAULT_HPP_
