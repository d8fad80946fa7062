// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The words every layer shares: status codes, element types, operations, algorithms, protocols. Installed flat beside
// ringbell.hpp, which includes it. No functions that need an OS, no CUDA.
#ifndef RINGBELL_TYPES_HPP_
#define RINGBELL_TYPES_HPP_

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define RINGBELL_TYPES_HD __host__ __device__
#else
#define RINGBELL_TYPES_HD
#endif

namespace ringbell {

/// What a call answers, grouped by what the caller must do next. Values are part of the wire format and of the C API.
enum class [[nodiscard]] Status : std::uint8_t{
    kOk = 0,
    // try again
    kPending = 1,  ///< `test`: not complete yet
    kAgain = 2,    ///< queue full, or the caller's wait deadline passed; nothing is broken
    // fix the call; nothing was queued
    kInvalidArgument = 3,
    kStale = 4,  ///< the ticket is older than the queue is deep; its result can no longer be told
    // rebuild the communicator: it answers every later call at once with an error
    kTimeout = 5,   ///< the operation time-out passed while waiting for a peer
    kPeerLost = 6,  ///< a peer process is gone
    kMismatch = 7,  ///< ranks disagree on the call: count, type, operation, algorithm or tag
    kAborted = 8,   ///< this or another rank aborted
    // neither
    kUnsupported = 9,  ///< not possible here (no CUDA in this build, residency refused, child of fork, ...)
    kSystem = 10,      ///< operating system or driver; the text has its words
};
inline constexpr int kStatusCount = 11;

/// A cudaStream_t (null: the legacy default stream) with CUDA, a HostStream* on the CPU executor.
using Stream = void*;

/// Element types. Values are part of the wire format and of the C API.
enum class DType : std::uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kFloat8E4M3 = 4,
  kFloat8E5M2 = 5,
  kInt8 = 6,
  kUInt8 = 7,
  kInt32 = 8,
  kUInt32 = 9,
  kInt64 = 10,
  kUInt64 = 11,
};
inline constexpr int kDTypeCount = 12;

/// Reductions. Numerics (wrap, rounding, NaN, signed zero, saturation) are in runtime/README.md.
enum class ReduceOp : std::uint8_t { kSum = 0, kProd = 1, kMin = 2, kMax = 3, kAvg = 4 };
inline constexpr int kReduceOpCount = 5;

/// How ranks talk: steps and hops.
enum class Algorithm : std::uint8_t {
  kAuto = 0,
  kRing = 1,     ///< 2 (N - 1) hops, 2 (N - 1) / N of the bytes; 8- and 16-bit floats are rounded at each hop
  kOneShot = 2,  ///< 1 hop, N - 1 times the bytes; folds in rank order, 8- and 16-bit floats are rounded once
};
inline constexpr int kAlgorithmCount = 3;

/// How a line crosses from one rank to the next (device/README.md has the byte pictures).
enum class Protocol : std::uint8_t { kAuto = 0, kLL = 1, kLL128 = 2, kSimple = 3 };
inline constexpr int kProtocolCount = 4;

/// @return bytes of one element; 0 for a value outside the enum.
RINGBELL_TYPES_HD constexpr std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kInt8:
    case DType::kUInt8: return 1;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32: return 4;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64: return 8;
  }
  return 0;
}

/// @return true for the types that round: their results may depend on the order of the ranks.
RINGBELL_TYPES_HD constexpr bool dtype_is_float(DType dtype) noexcept {
  return static_cast<int>(dtype) <= static_cast<int>(DType::kFloat8E5M2);
}

/// @return true for errors after which the communicator must be rebuilt.
RINGBELL_TYPES_HD constexpr bool status_breaks_communicator(Status status) noexcept {
  return status == Status::kTimeout || status == Status::kPeerLost || status == Status::kMismatch ||
         status == Status::kAborted || status == Status::kSystem;
}

}  // namespace ringbell

#endif  // RINGBELL_TYPES_HPP_
