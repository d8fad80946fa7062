// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One kernel per memory operation of a CUDA worker, compiled to PTX and read by tests/codegen_test.py. Never run.
#include "device/mem/ops_cuda.cuh"

using ringbell::device::CudaOps;
using ringbell::device::Edge;
using ringbell::device::LlLine;
using ringbell::device::LlWords;
using ringbell::device::Quad;
using ringbell::device::Readers;

// Every probe reads its operands from parameters and leaves its result in shared memory: whatever else than `operation`
// appears in its PTX is no access to global memory.
#define RINGBELL_PROBE(name, operation)                                                         \
  extern "C" __global__ void probe_##name(std::uint64_t* p, std::uint64_t a, std::uint64_t b) { \
    __shared__ std::uint64_t result[2];                                                         \
    operation;                                                                                  \
    if (a == 12345) probe_sink(result);                                                         \
  }
__device__ __noinline__ void probe_sink(const std::uint64_t* result) {
  asm volatile("" : : "l"(result[0]), "l"(result[1]) : "memory");
}
__device__ inline void keep(std::uint64_t* result, Quad quad) {
  result[0] = quad.lo;
  result[1] = quad.hi;
}

RINGBELL_PROBE(load_relaxed, result[0] = CudaOps::load_relaxed(p))
RINGBELL_PROBE(load_acquire, result[0] = CudaOps::load_acquire(p, Edge::kTail))
RINGBELL_PROBE(store_relaxed, CudaOps::store_relaxed(p, a))
RINGBELL_PROBE(store_release, CudaOps::store_release(p, a, Edge::kTail))
RINGBELL_PROBE(store_after_reads, CudaOps::store_after_reads(p, a, Edge::kCredit))
RINGBELL_PROBE(fence_seq_cst, CudaOps::fence_seq_cst(Edge::kPark))
RINGBELL_PROBE(compare_exchange_acquire, result[0] = CudaOps::compare_exchange_acquire(p, a, b, Edge::kTurn))
RINGBELL_PROBE(compare_exchange_release, result[0] = CudaOps::compare_exchange_release(p, a, b, Edge::kTurn))
RINGBELL_PROBE(publish_ll, CudaOps::publish_ll(reinterpret_cast<LlLine*>(p), LlWords{{a, b}}))
RINGBELL_PROBE(read_ll, const LlWords words = CudaOps::read_ll(reinterpret_cast<LlLine*>(p));
               keep(result, Quad{words.word[0], words.word[1]}))
RINGBELL_PROBE(publish_quad, CudaOps::publish_quad(reinterpret_cast<Quad*>(p), Quad{a, b}))
RINGBELL_PROBE(publish_flag_quad, CudaOps::publish_flag_quad(reinterpret_cast<Quad*>(p), Quad{a, b}, Edge::kLl128Flag))
RINGBELL_PROBE(read_quad, keep(result, CudaOps::read_quad(reinterpret_cast<Quad*>(p))))
RINGBELL_PROBE(read_flag_quad, keep(result, CudaOps::read_flag_quad(reinterpret_cast<Quad*>(p), Edge::kLl128Flag)))
RINGBELL_PROBE(read_command_quad, keep(result, CudaOps::read_command_quad(reinterpret_cast<Quad*>(p), Edge::kCommand)))
RINGBELL_PROBE(publish_completion,
               CudaOps::publish_completion(reinterpret_cast<Quad*>(p), Quad{a, b}, Readers::kAll, Edge::kCompletion))
RINGBELL_PROBE(publish_completion_gpu, CudaOps::publish_completion(reinterpret_cast<Quad*>(p), Quad{a, b},
                                                                   Readers::kThisGpu, Edge::kCompletion))
RINGBELL_PROBE(publish_completion_of_nothing,
               CudaOps::publish_completion(reinterpret_cast<Quad*>(p), Quad{a, b}, Readers::kNobody, Edge::kCompletion))
RINGBELL_PROBE(load_user_u8, result[0] = CudaOps::load_user_u8(p))
RINGBELL_PROBE(load_user_u16, result[0] = CudaOps::load_user_u16(p))
RINGBELL_PROBE(load_user_u32, result[0] = CudaOps::load_user_u32(p))
RINGBELL_PROBE(load_user_u64, result[0] = CudaOps::load_user_u64(p))
RINGBELL_PROBE(load_user_quad, keep(result, CudaOps::load_user_quad(p)))
RINGBELL_PROBE(store_user_u8, CudaOps::store_user_u8(p, static_cast<std::uint8_t>(a)))
RINGBELL_PROBE(store_user_u16, CudaOps::store_user_u16(p, static_cast<std::uint16_t>(a)))
RINGBELL_PROBE(store_user_u32, CudaOps::store_user_u32(p, static_cast<std::uint32_t>(a)))
RINGBELL_PROBE(store_user_u64, CudaOps::store_user_u64(p, a))
RINGBELL_PROBE(store_user_quad, CudaOps::store_user_quad(p, Quad{a, b}))
RINGBELL_PROBE(now_ns, result[0] = CudaOps::now_ns())
RINGBELL_PROBE(pause, CudaOps::pause(static_cast<unsigned>(a)))
RINGBELL_PROBE(idle_pause, CudaOps::idle_pause(static_cast<unsigned>(a)))
