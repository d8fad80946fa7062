// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory operations of a CUDA worker: one function is one PTX instruction, or a fence and one. Everything that another
// agent touches is accessed at system scope, because peers, copy engines and the host are all out there. No protocol
// here.
//
// PTX asks for global addresses: cvta.to.global is spelled and becomes no machine instruction, since the generic and
// the global window are the same; it spares the hardware's check whether an address is shared or local memory.
#ifndef RINGBELL_DEVICE_MEM_OPS_CUDA_CUH_
#define RINGBELL_DEVICE_MEM_OPS_CUDA_CUH_

#include "device/mem/ops.hpp"

namespace ringbell::device {

struct CudaOps {
  static constexpr unsigned kSpinsPerCheck = 1024;  // an empty poll of local memory takes about half a microsecond
  static constexpr unsigned kIdlePauseNs = 100;     // measured: free for the latency of a call

  // --- 8-byte words
  __device__ static std::uint64_t load_relaxed(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(word)) : "memory");
    return value;
  }
  // An acquire load and not a relaxed one and a fence: a fence also waits for this thread's outstanding stores (0.5
  // us), the load only drops the L1 lines of this SM.
  __device__ static std::uint64_t load_acquire(const std::uint64_t* word, Edge) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(word)) : "memory");
    return value;
  }
  __device__ static void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(global(word)), "l"(value) : "memory");
  }
  // After a barrier the fence of one lane covers the stores of all lanes that passed it: fences are cumulative.
  __device__ static void store_release(std::uint64_t* word, std::uint64_t value, Edge) {
    fence_sys();
    store_relaxed(word, value);
  }
  // No fence: a load has happened once its value was used, and every lane used its values (a branch on the flag, a
  // store of the data) before the barrier that precedes this store. The lane's earlier stores are not promised to
  // anybody.
  __device__ static void store_after_reads(std::uint64_t* word, std::uint64_t value, Edge) {
    store_relaxed(word, value);
  }
  // Park: state then queue, against the host's queue then state. Only a full fence keeps a store before a later load.
  __device__ static void fence_seq_cst(Edge) { asm volatile("fence.sc.sys;" : : : "memory"); }

  // Own device memory, and only kernels of this GPU ask.
  __device__ static bool compare_exchange_acquire(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired,
                                                  Edge) {
    std::uint64_t found;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(found)
                 : "l"(global(word)), "l"(expected), "l"(desired)
                 : "memory");
    return found == expected;
  }
  // After a barrier the fence covers all lanes, as that of store_release does.
  __device__ static bool compare_exchange_release(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired,
                                                  Edge) {
    fence_gpu();
    std::uint64_t found;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(found)
                 : "l"(global(word)), "l"(expected), "l"(desired)
                 : "memory");
    return found == expected;
  }

  // --- LL: each half of the vector is one atomic 8-byte access, which is all that the flag in it needs.
  __device__ static void publish_ll(LlLine* line, LlWords words) { store_v2(line, words.word[0], words.word[1]); }
  __device__ static LlWords read_ll(const LlLine* line) {
    LlWords words;
    load_v2(line, &words.word[0], &words.word[1]);
    return words;
  }

  // --- quads of a window. kLl128Flag: lanes that are together store the eight quads of a line in one request, and
  // links that carry a request of 128 bytes whole are found by the torn-line test (torn_line.cu); the receiver's reload
  // makes up for the order of its own loads. Lanes that are apart store the data, meet, and the flag's lane puts a
  // fence before its quad. Simple orders its quads by tail and fence.
  __device__ static void publish_quad(Quad* to, Quad quad) { store_v2(to, quad.lo, quad.hi); }
  __device__ static void publish_flag_quad(Quad* to, Quad quad, Edge) {
    fence_sys();
    store_v2(to, quad.lo, quad.hi);
  }
  __device__ static Quad read_quad(const Quad* from) {
    Quad quad;
    load_v2(from, &quad.lo, &quad.hi);
    return quad;
  }
  __device__ static Quad read_flag_quad(const Quad* from, Edge) { return read_quad(from); }

  // --- host queue
  // One atomic access of 16 bytes: the flag and the 12 bytes that it vouches for come together, so nothing is acquired.
  // What the command points to is read by the strong loads below, which are issued after the branch on the flag and are
  // served by L2 or memory, never by a line that L1 kept from an earlier command.
  __device__ static Quad read_command_quad(const Quad* from, Edge) {
    Quad quad;
    asm volatile("{ .reg .b128 pair; ld.relaxed.sys.global.b128 pair, [%2]; mov.b128 {%0, %1}, pair; }"
                 : "=l"(quad.lo), "=l"(quad.hi)
                 : "l"(global(from))
                 : "memory");
    return quad;
  }
  // kThisGpu: readers of `out` are kernels and copy engines of this GPU, and the host only through them; they look in
  // the L2 that the fence reaches, as long as the kernel runs in the default memory-sync domain (launch.hpp).
  __device__ static void publish_completion(Quad* to, Quad quad, Readers readers, Edge) {
    if (readers == Readers::kThisGpu) {
      fence_gpu();
    } else if (readers == Readers::kAll) {
      fence_sys();
    }
    asm volatile("{ .reg .b128 pair; mov.b128 pair, {%1, %2}; st.relaxed.sys.global.b128 [%0], pair; }"
                 :
                 : "l"(global(to)), "l"(quad.lo), "l"(quad.hi)
                 : "memory");
  }

  // --- user memory. Loads are strong: this kernel outlives many rewrites of the same buffer, so neither L1 nor the
  // read-only cache may answer. Stores are plain: the fence of the completion publishes them.
  __device__ static std::uint8_t load_user_u8(const void* p) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(value) : "l"(global(p)) : "memory");
    return static_cast<std::uint8_t>(value);
  }
  __device__ static std::uint16_t load_user_u16(const void* p) {
    std::uint16_t value;
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(global(p)) : "memory");
    return value;
  }
  __device__ static std::uint32_t load_user_u32(const void* p) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(global(p)) : "memory");
    return value;
  }
  __device__ static std::uint64_t load_user_u64(const void* p) {
    return load_relaxed(static_cast<const std::uint64_t*>(p));
  }
  __device__ static Quad load_user_quad(const void* p) {
    Quad quad;
    load_v2(p, &quad.lo, &quad.hi);
    return quad;
  }
  __device__ static void store_user_u8(void* p, std::uint8_t value) {
    asm volatile("st.global.u8 [%0], %1;" : : "l"(global(p)), "r"(static_cast<std::uint32_t>(value)) : "memory");
  }
  __device__ static void store_user_u16(void* p, std::uint16_t value) {
    asm volatile("st.global.u16 [%0], %1;" : : "l"(global(p)), "h"(value) : "memory");
  }
  __device__ static void store_user_u32(void* p, std::uint32_t value) {
    asm volatile("st.global.u32 [%0], %1;" : : "l"(global(p)), "r"(value) : "memory");
  }
  __device__ static void store_user_u64(void* p, std::uint64_t value) {
    asm volatile("st.global.u64 [%0], %1;" : : "l"(global(p)), "l"(value) : "memory");
  }
  __device__ static void store_user_quad(void* p, Quad quad) {
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" : : "l"(global(p)), "l"(quad.lo), "l"(quad.hi) : "memory");
  }

  // --- time and back-off
  __device__ static std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
    return now;
  }
  // A peer's word lies in local memory and is awaited for microseconds: a sleep would only add to them.
  __device__ static void pause(unsigned) {}
  __device__ static void idle_pause(unsigned) { asm volatile("nanosleep.u32 %0;" : : "n"(kIdlePauseNs) : "memory"); }

 private:
  __device__ static std::uint64_t global(const void* p) { return __cvta_generic_to_global(p); }
  __device__ static void fence_gpu() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }
  __device__ static void fence_sys() { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
  __device__ static void store_v2(void* to, std::uint64_t low, std::uint64_t high) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(global(to)), "l"(low), "l"(high) : "memory");
  }
  __device__ static void load_v2(const void* from, std::uint64_t* low, std::uint64_t* high) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*low), "=l"(*high)
                 : "l"(global(from))
                 : "memory");
  }
};
static_assert(MemOps<CudaOps>);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_OPS_CUDA_CUH_
