// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Compiler targets and the constants of the hardware. Beside it only device/math asks which compiler reads it.
#ifndef RINGBELL_DEVICE_CONFIG_HPP_
#define RINGBELL_DEVICE_CONFIG_HPP_

#include <cstddef>
#include <cstdint>

// RINGBELL_HD: pure helpers, both sides. RINGBELL_TARGET: code a worker runs; device code under nvcc, plain code under
// g++, so that the CPU form can only be instantiated in a .cpp and the CUDA form only in a .cu.
#if defined(__CUDACC__)
#define RINGBELL_HD __host__ __device__
#define RINGBELL_TARGET __device__
#else
#define RINGBELL_HD
#define RINGBELL_TARGET
#endif
#if defined(__CUDA_ARCH__)
#define RINGBELL_UNROLL _Pragma("unroll")
#define RINGBELL_ROLLED _Pragma("unroll 1")
#else
#define RINGBELL_UNROLL
#define RINGBELL_ROLLED
#endif
#define RINGBELL_INLINE inline __attribute__((always_inline))
#define RINGBELL_NOINLINE __attribute__((noinline))

namespace ringbell::device {

inline constexpr int kMaxRanks = 8;
inline constexpr std::size_t kCacheLineBytes =
    128;  // GPU line; two x86 lines, which the adjacent-line prefetcher pairs
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kQuadBytes = 16;

// How a call is issued. Each way has its own region of the windows, its own epochs and its own records, and is in order
// by itself.
inline constexpr unsigned kHostWay = 0;    // through the queue in host memory, to a worker that is there
inline constexpr unsigned kStreamWay = 1;  // launched on a stream
inline constexpr unsigned kWays = 2;

/// Bits that are set.
RINGBELL_HD inline unsigned count_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__popc(word));
#else
  return static_cast<unsigned>(__builtin_popcount(word));
#endif
}

/// 16 bytes: the widest word that anything here moves at once.
struct alignas(16) Quad {
  std::uint64_t lo;
  std::uint64_t hi;
};
static_assert(sizeof(Quad) == kQuadBytes);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_CONFIG_HPP_
