// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory operations of a CPU worker: C++ atomics on 8-byte words. A CPU promises no 16- or 128-byte store, but it can
// keep "whole line or nothing": LL words carry their flag, LL128 writes data, then releases the flag.
#ifndef RINGBELL_DEVICE_MEM_OPS_CPU_HPP_
#define RINGBELL_DEVICE_MEM_OPS_CPU_HPP_

#if defined(__CUDACC__)
#error "ops_cpu.hpp belongs in a .cpp: the CPU form is not instantiated by nvcc"
#endif

#include <atomic>
#include <cstring>

#include <sched.h>
#include <time.h>

#include "device/mem/ops.hpp"

namespace ringbell::device {

struct CpuOps {
  static constexpr unsigned kSpinsPerCheck = 256;
  // Spinning pays only while the peer runs on another core; with more ranks than cores a yield hands it the core.
  static constexpr unsigned kSpinsPerYield = 64;

  static std::uint64_t load_relaxed(const std::uint64_t* word) { return ref(word).load(std::memory_order_relaxed); }
  static std::uint64_t load_acquire(const std::uint64_t* word, Edge) {
    return ref(word).load(std::memory_order_acquire);
  }
  static void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    ref(word).store(value, std::memory_order_relaxed);
  }
  static void store_release(std::uint64_t* word, std::uint64_t value, Edge) {
    ref(word).store(value, std::memory_order_release);
  }
  static void store_after_reads(std::uint64_t* word, std::uint64_t value, Edge) {
    ref(word).store(value, std::memory_order_release);
  }
  static void fence_seq_cst(Edge) {
#if defined(__SANITIZE_THREAD__)
    // TSan does not model fences: a read-modify-write of one word that all fences share orders as strongly.
    static std::uint64_t shared_word = 0;
    ref(&shared_word).fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  /// Host side only (queue/producer.hpp): not part of the concept, a GPU has no such operation on host memory.
  static bool compare_exchange(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
    return ref(word).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
  }

  static bool compare_exchange_acquire(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired, Edge) {
    return compare_exchange(word, expected, desired);
  }
  static bool compare_exchange_release(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired, Edge) {
    return compare_exchange(word, expected, desired);
  }

  static void publish_ll(LlLine* line, LlWords words) {
    store_relaxed(&line->word[0], words.word[0]);
    store_relaxed(&line->word[1], words.word[1]);
  }
  static LlWords read_ll(const LlLine* line) { return {{load_relaxed(&line->word[0]), load_relaxed(&line->word[1])}}; }

  static void publish_quad(Quad* to, Quad quad) {
    store_relaxed(&to->lo, quad.lo);
    store_relaxed(&to->hi, quad.hi);
  }
  static void publish_flag_quad(Quad* to, Quad quad, Edge edge) {
    store_relaxed(&to->lo, quad.lo);
    store_release(&to->hi, quad.hi, edge);
  }
  static Quad read_quad(const Quad* from) { return {load_relaxed(&from->lo), load_relaxed(&from->hi)}; }
  static Quad read_flag_quad(const Quad* from, Edge edge) {
    const std::uint64_t flag = load_acquire(&from->hi, edge);
    return {load_relaxed(&from->lo), flag};
  }
  static Quad read_command_quad(const Quad* from, Edge edge) { return read_flag_quad(from, edge); }
  static void publish_completion(Quad* to, Quad quad, Readers, Edge edge) { publish_flag_quad(to, quad, edge); }

  // Plain accesses: the acquire of the command orders the loads, the release of the completion the stores.
  static std::uint8_t load_user_u8(const void* p) { return load_plain<std::uint8_t>(p); }
  static std::uint16_t load_user_u16(const void* p) { return load_plain<std::uint16_t>(p); }
  static std::uint32_t load_user_u32(const void* p) { return load_plain<std::uint32_t>(p); }
  static std::uint64_t load_user_u64(const void* p) { return load_plain<std::uint64_t>(p); }
  static Quad load_user_quad(const void* p) { return load_plain<Quad>(p); }
  static void store_user_u8(void* p, std::uint8_t value) { std::memcpy(p, &value, sizeof value); }
  static void store_user_u16(void* p, std::uint16_t value) { std::memcpy(p, &value, sizeof value); }
  static void store_user_u32(void* p, std::uint32_t value) { std::memcpy(p, &value, sizeof value); }
  static void store_user_u64(void* p, std::uint64_t value) { std::memcpy(p, &value, sizeof value); }
  static void store_user_quad(void* p, Quad value) { std::memcpy(p, &value, sizeof value); }

  static std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  }
  static void pause(unsigned polls) {
    if (polls % kSpinsPerYield == 0) {
      sched_yield();
    } else {
      relax();
    }
  }
  static void idle_pause(unsigned polls) { pause(polls); }

 private:
  static std::atomic_ref<std::uint64_t> ref(const std::uint64_t* word) {
    return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(word));
  }
  template <class T>
  static T load_plain(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
};
static_assert(MemOps<CpuOps>);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_OPS_CPU_HPP_
