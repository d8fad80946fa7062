// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory-operations policy: what a worker may do to memory that somebody else also touches. One static function is
// one instruction (or the nearest thing a CPU has). Protocols are templates over a type that models `MemOps`:
// CpuOps (ops_cpu.hpp), CudaOps (ops_cuda.cuh), and in tests the seeded scheduler and the fault decorator.
#ifndef RINGBELL_DEVICE_MEM_OPS_HPP_
#define RINGBELL_DEVICE_MEM_OPS_HPP_

#include <concepts>

#include "device/config.hpp"
#include "device/layout/ll_line.hpp"
#include "device/mem/edges.hpp"

namespace ringbell::device {

/// Who may read what the worker wrote before a completion: nobody (it wrote nothing), kernels and copies of this GPU,
/// or also the host and other devices.
enum class Readers { kNobody, kThisGpu, kAll };

template <class M>
concept MemOps = requires(std::uint64_t* word, const std::uint64_t* cword, LlLine* line, const LlLine* cline,
                          Quad* quad, const Quad* cquad, void* user, const void* cuser, Edge edge) {
  // 8-byte words. relaxed: strong (never served from a stale cache, never torn), unordered.
  { M::load_relaxed(cword) } -> std::same_as<std::uint64_t>;
  { M::load_acquire(cword, edge) } -> std::same_as<std::uint64_t>;
  {M::store_relaxed(word, 1u)};
  {M::store_release(word, 1u, edge)};
  // Orders this worker's earlier LOADS before the store; its earlier stores need not be visible first.
  {M::store_after_reads(word, 1u, edge)};
  {M::fence_seq_cst(edge)};
  // The worker's own memory: calls that were launched side by side ask whose turn it is. True if the word was as
  // expected.
  { M::compare_exchange_acquire(word, 1u, 1u, edge) } -> std::same_as<bool>;
  { M::compare_exchange_release(word, 1u, 1u, edge) } -> std::same_as<bool>;
  // LL: two words, each valid by itself ({data, flag} in 8 bytes); no order between them.
  {M::publish_ll(line, LlWords{})};
  { M::read_ll(cline) } -> std::same_as<LlWords>;
  // Quads of a window. publish_flag_quad: after the data quads of the same 128-byte line, flag in .hi.
  {M::publish_quad(quad, Quad{})};
  {M::publish_flag_quad(quad, Quad{}, edge)};
  { M::read_quad(cquad) } -> std::same_as<Quad>;
  { M::read_flag_quad(cquad, edge) } -> std::same_as<Quad>;
  // A command quad in host memory: one 16-byte atomic load, or flag half (acquire) then payload half.
  { M::read_command_quad(cquad, edge) } -> std::same_as<Quad>;
  // Completion line in host memory: {info, word}; word last, after what the readers may read.
  {M::publish_completion(quad, Quad{}, Readers::kAll, edge)};
  // User memory, naturally aligned for the width. Loads see what was written before the command was.
  { M::load_user_u8(cuser) } -> std::same_as<std::uint8_t>;
  { M::load_user_u16(cuser) } -> std::same_as<std::uint16_t>;
  { M::load_user_u32(cuser) } -> std::same_as<std::uint32_t>;
  { M::load_user_u64(cuser) } -> std::same_as<std::uint64_t>;
  { M::load_user_quad(cuser) } -> std::same_as<Quad>;
  {M::store_user_u8(user, std::uint8_t{})};
  {M::store_user_u16(user, std::uint16_t{})};
  {M::store_user_u32(user, std::uint32_t{})};
  {M::store_user_u64(user, std::uint64_t{})};
  {M::store_user_quad(user, Quad{})};
  // Time and back-off. now_ns: monotonic, one clock for all lanes of a worker.
  { M::now_ns() } -> std::same_as<std::uint64_t>;
  {M::pause(1u)};                                          // between two polls of a peer's word; argument: polls so far
  {M::idle_pause(1u)};                                     // between two polls of the queue
  { M::kSpinsPerCheck } -> std::convertible_to<unsigned>;  // polls between two looks at clock and abort words
};

/// True if the planted fault `mutant` is what M's test plants.
template <class M>
RINGBELL_HD constexpr bool mutated(Mutant mutant) {
  return kMutantOf<M> == mutant;
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_OPS_HPP_
