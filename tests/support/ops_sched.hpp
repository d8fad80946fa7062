// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory operations of the explorer: every access goes to the modelled memory (shared_memory.hpp). `kPlanted` deletes
// one instruction of the protocol; SchedModel::weakening weakens one order.
#ifndef RINGBELL_TESTS_SUPPORT_OPS_SCHED_HPP_
#define RINGBELL_TESTS_SUPPORT_OPS_SCHED_HPP_

#include <array>
#include <cstddef>
#include <functional>

#include "device/mem/ops.hpp"
#include "device/worker/launched_call.hpp"
#include "tests/support/mutants.hpp"
#include "tests/support/shared_memory.hpp"

namespace ringbell::test {

/// What the static operations work on: set while a world explores.
struct SchedModel {
  inline static SharedMemory* memory = nullptr;
  inline static Weakening weakening;
  inline static std::array<bool, kMaxModelThreads> is_worker{};
  inline static std::function<void(const std::uint64_t* turn, bool taken)> on_turn;  // somebody tried to take it

  static bool weak(device::Edge edge, Side side) { return weakening.hits(edge, side); }
};

template <device::Mutant kPlanted = device::Mutant::kNone>
struct SchedOps {
  using Edge = device::Edge;
  using Quad = device::Quad;
  static constexpr unsigned kSpinsPerCheck = 8;

  static std::uint64_t load_relaxed(const std::uint64_t* word) { return load(word, Load::kRelaxed, "load_relaxed"); }
  static std::uint64_t load_acquire(const std::uint64_t* word, Edge edge) {
    return load(word, SchedModel::weak(edge, Side::kAcquire) ? Load::kRelaxed : Load::kAcquire, "load_acquire");
  }
  static void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    store(word, value, Visible::kAnyTime, "store_relaxed");
  }
  static void store_release(std::uint64_t* word, std::uint64_t value, Edge edge) {
    store(word, value, SchedModel::weak(edge, Side::kRelease) ? Visible::kAnyTime : Visible::kRelease, "store_release");
  }
  // Loads happen when they are issued, so the store may overtake only stores: no more than a relaxed one.
  static void store_after_reads(std::uint64_t* word, std::uint64_t value, Edge) {
    store(word, value, Visible::kAnyTime, "store_after_reads");
  }
  static void fence_seq_cst(Edge edge) {
    const Side side = SchedModel::is_worker[Scheduler::current().self()] ? Side::kWorker : Side::kHost;
    if (!SchedModel::weak(edge, side)) SchedModel::memory->fence_seq_cst();
  }
  static bool compare_exchange(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
    return SchedModel::memory->compare_exchange(word, expected, desired);
  }
  static bool compare_exchange_acquire(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired, Edge edge) {
    const Exchange order = SchedModel::weak(edge, Side::kAcquire) ? Exchange::kRelaxed : Exchange::kAcquire;
    const bool won = SchedModel::memory->compare_exchange(word, expected, desired, order);
    if (edge == Edge::kTurn && desired == device::kTurnTaken && SchedModel::on_turn) SchedModel::on_turn(word, won);
    return won;
  }

  static bool compare_exchange_release(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired, Edge edge) {
    const Exchange order = SchedModel::weak(edge, Side::kRelease) ? Exchange::kRelaxed : Exchange::kRelease;
    return SchedModel::memory->compare_exchange(word, expected, desired, order);
  }

  static void publish_ll(device::LlLine* line, device::LlWords words) {
    store(&line->word[0], words.word[0], Visible::kAnyTime, "publish_ll");
    store(&line->word[1], words.word[1], Visible::kAnyTime, "publish_ll");
  }
  static device::LlWords read_ll(const device::LlLine* line) {
    const std::uint64_t first = load(&line->word[0], Load::kRelaxed, "read_ll");
    return {{first, load(&line->word[1], Load::kRelaxed, "read_ll")}};
  }
  static void publish_quad(Quad* to, Quad quad) {
    store(&to->lo, quad.lo, Visible::kAnyTime, "publish_quad");
    store(&to->hi, quad.hi, Visible::kAnyTime, "publish_quad");
  }
  static void publish_flag_quad(Quad* to, Quad quad, Edge edge) {
    store(&to->lo, quad.lo, Visible::kAnyTime, "publish_flag_quad");
    store(&to->hi, quad.hi, SchedModel::weak(edge, Side::kRelease) ? Visible::kAnyTime : Visible::kAfterLine,
          "publish_flag_quad");
  }
  static Quad read_quad(const Quad* from) {
    const std::uint64_t lo = load(&from->lo, Load::kRelaxed, "read_quad");
    return {lo, load(&from->hi, Load::kRelaxed, "read_quad")};
  }
  static Quad read_flag_quad(const Quad* from, Edge edge) {
    const Load order = SchedModel::weak(edge, Side::kAcquire) ? Load::kRelaxed : Load::kAcquire;
    const std::uint64_t flag = load(&from->hi, order, "read_flag_quad");
    return {load(&from->lo, Load::kRelaxed, "read_flag_quad"), flag};
  }
  static Quad read_command_quad(const Quad* from, Edge edge) {
    const Load order = SchedModel::weak(edge, Side::kAcquire) ? Load::kRelaxed : Load::kAcquire;
    const std::uint64_t flag = load(&from->hi, order, "read_command_quad");
    return {load(&from->lo, Load::kRelaxed, "read_command_quad"), flag};
  }
  static void publish_completion(Quad* to, Quad quad, device::Readers, Edge edge) {
    store(&to->lo, quad.lo, Visible::kAnyTime, "publish_completion");
    store(&to->hi, quad.hi, SchedModel::weak(edge, Side::kRelease) ? Visible::kAnyTime : Visible::kRelease,
          "publish_completion");
  }

  static std::uint8_t load_user_u8(const void* p) { return static_cast<std::uint8_t>(load_user(p, 1)); }
  static std::uint16_t load_user_u16(const void* p) { return static_cast<std::uint16_t>(load_user(p, 2)); }
  static std::uint32_t load_user_u32(const void* p) { return static_cast<std::uint32_t>(load_user(p, 4)); }
  static std::uint64_t load_user_u64(const void* p) { return load_user(p, 8); }
  static Quad load_user_quad(const void* p) {
    const std::uint64_t lo = load_user(p, 8);
    return {lo, load_user(static_cast<const std::byte*>(p) + 8, 8)};
  }
  static void store_user_u8(void* p, std::uint8_t value) { store_user(p, 1, value); }
  static void store_user_u16(void* p, std::uint16_t value) { store_user(p, 2, value); }
  static void store_user_u32(void* p, std::uint32_t value) { store_user(p, 4, value); }
  static void store_user_u64(void* p, std::uint64_t value) { store_user(p, 8, value); }
  static void store_user_quad(void* p, Quad value) {
    store_user(p, 8, value.lo);
    store_user(static_cast<std::byte*>(p) + 8, 8, value.hi);
  }

  static std::uint64_t now_ns() { return Scheduler::current().now_ns() + 1'000'000; }
  static void pause(unsigned) { Scheduler::current().yield(); }
  static void idle_pause(unsigned) { Scheduler::current().yield(); }

 private:
  static std::uint64_t load(const std::uint64_t* word, Load order, const char* what) {
    return SchedModel::memory->load(word, 8, order, what);
  }
  static void store(std::uint64_t* word, std::uint64_t value, Visible visible, const char* what) {
    SchedModel::memory->store(word, 8, value, visible, what);
  }
  static std::uint64_t load_user(const void* p, unsigned bytes) {
    return SchedModel::memory->load(p, bytes, Load::kPlain, "load_user");
  }
  static void store_user(void* p, unsigned bytes, std::uint64_t value) {
    SchedModel::memory->store(p, bytes, value, Visible::kAnyTime, "store_user");
  }
};

}  // namespace ringbell::test

template <ringbell::device::Mutant kPlanted>
inline constexpr ringbell::device::Mutant ringbell::device::kMutantOf<ringbell::test::SchedOps<kPlanted>> = kPlanted;

static_assert(ringbell::device::MemOps<ringbell::test::SchedOps<>>);

#endif  // RINGBELL_TESTS_SUPPORT_OPS_SCHED_HPP_
