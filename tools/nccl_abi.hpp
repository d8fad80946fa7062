// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The few functions and values of NCCL's documented C interface that perf uses, for a library that is opened at run
// time: neither its headers nor the library are needed to build. Pure.
#ifndef RINGBELL_TOOLS_NCCL_ABI_HPP_
#define RINGBELL_TOOLS_NCCL_ABI_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/ringbell_types.hpp"

namespace ringbell::tools {

inline constexpr const char* kNcclFile = "libnccl.so.2";
inline constexpr int kNcclOk = 0;
inline constexpr int kNcclWindowSymmetric = 1;  ///< flag of ncclCommWindowRegister

struct NcclId {  ///< passed by value
  std::uint64_t words[16];
};
using NcclComm = void*;
using NcclWindow = void*;
using NcclStream = void*;  ///< cudaStream_t

/// Types and operations are C enums: int.
struct NcclFunctions {
  int (*get_version)(int*);
  const char* (*get_error_string)(int);
  const char* (*get_last_error)(NcclComm);
  int (*get_unique_id)(NcclId*);
  int (*comm_init_rank)(NcclComm*, int ranks, NcclId, int rank);
  int (*all_reduce)(const void*, void*, std::size_t, int dtype, int op, NcclComm, NcclStream);
  int (*comm_destroy)(NcclComm);
  int (*comm_abort)(NcclComm);
  // Null in versions before kNcclWithWindows, which is when they are wanted.
  int (*mem_alloc)(void**, std::size_t);
  int (*mem_free)(void*);
  int (*window_register)(NcclComm, void*, std::size_t, NcclWindow*, int flags);
  int (*window_deregister)(NcclComm, NcclWindow);
};

/// As ncclGetVersion tells it since 2.9.
inline constexpr int kNcclOldest = 21800;
inline constexpr int kNcclWithFloat8 = 22400;   ///< the 8-bit floats
inline constexpr int kNcclWithWindows = 22700;  ///< symmetric windows

/// "2.28.9".
inline std::string nccl_version_text(int code) {
  const int major = code < 10000 ? code / 1000 : code / 10000;
  const int minor = code < 10000 ? code % 1000 / 100 : code % 10000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

/// What is wrong with a version, empty if nothing.
inline std::string nccl_version_refusal(int code, int needed) {
  if (code >= needed) return "";
  return std::string(kNcclFile) + " is NCCL " + nccl_version_text(code) + ", " + nccl_version_text(needed) +
         " or newer is needed";
}

/// ncclDataType_t. Every type of ours has one.
inline int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return 0;
    case DType::kUInt8: return 1;
    case DType::kInt32: return 2;
    case DType::kUInt32: return 3;
    case DType::kInt64: return 4;
    case DType::kUInt64: return 5;
    case DType::kFloat16: return 6;
    case DType::kFloat32: return 7;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 9;
    case DType::kFloat8E4M3: return 10;
    case DType::kFloat8E5M2: return 11;
  }
  return -1;
}

/// ncclRedOp_t.
inline int nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return 0;
    case ReduceOp::kProd: return 1;
    case ReduceOp::kMax: return 2;
    case ReduceOp::kMin: return 3;
    case ReduceOp::kAvg: return 4;
  }
  return -1;
}

inline bool is_float8(DType dtype) { return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2; }

/// An average of floats is a sum of inputs that were scaled before: our bits only where the scale is a power of two.
inline bool nccl_is_exact(DType dtype, ReduceOp op, int ranks) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kInt64:
    case DType::kUInt64: return true;
    default: return op != ReduceOp::kAvg || (ranks & (ranks - 1)) == 0;
  }
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_NCCL_ABI_HPP_
