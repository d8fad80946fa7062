// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Names of the public enums, as users type and read them.
#include "runtime/ringbell.hpp"

namespace ringbell {

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::kOk: return "ok";
    case Status::kPending: return "pending";
    case Status::kAgain: return "again";
    case Status::kInvalidArgument: return "invalid argument";
    case Status::kStale: return "stale ticket";
    case Status::kTimeout: return "time-out";
    case Status::kPeerLost: return "peer lost";
    case Status::kMismatch: return "mismatch";
    case Status::kAborted: return "aborted";
    case Status::kUnsupported: return "unsupported";
    case Status::kSystem: return "system error";
  }
  return "unknown status";
}

const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat8E4M3: return "float8_e4m3";
    case DType::kFloat8E5M2: return "float8_e5m2";
    case DType::kInt8: return "int8";
    case DType::kUInt8: return "uint8";
    case DType::kInt32: return "int32";
    case DType::kUInt32: return "uint32";
    case DType::kInt64: return "int64";
    case DType::kUInt64: return "uint64";
  }
  return "unknown dtype";
}

const char* reduce_op_name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kAvg: return "avg";
  }
  return "unknown op";
}

const char* algorithm_name(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kAuto: return "auto";
    case Algorithm::kRing: return "ring";
    case Algorithm::kOneShot: return "oneshot";
  }
  return "unknown algorithm";
}

const char* protocol_name(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::kAuto: return "auto";
    case Protocol::kLL: return "LL";
    case Protocol::kLL128: return "LL128";
    case Protocol::kSimple: return "Simple";
  }
  return "unknown protocol";
}

}  // namespace ringbell
