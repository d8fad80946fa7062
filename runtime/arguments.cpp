// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/arguments.hpp"

#include <fmt/format.h>

namespace ringbell {

ArgumentFault find_fault(const AllReduceCall& call) noexcept {
  if (static_cast<int>(call.dtype) >= kDTypeCount) return ArgumentFault::kDType;
  if (static_cast<int>(call.op) >= kReduceOpCount) return ArgumentFault::kOp;
  if (static_cast<int>(call.options.algorithm) >= kAlgorithmCount) return ArgumentFault::kAlgorithm;
  if (static_cast<int>(call.options.protocol) >= kProtocolCount) return ArgumentFault::kProtocol;
  if (call.count == 0) return ArgumentFault::kNone;
  if (call.in == nullptr) return ArgumentFault::kNullIn;
  if (call.out == nullptr) return ArgumentFault::kNullOut;
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  constexpr std::uint64_t kLongest = ~std::uint64_t{0} >> 1;
  if (call.count > kLongest / dtype_bytes(call.dtype)) return ArgumentFault::kTooLong;
  const std::uint64_t bytes = call.count * dtype_bytes(call.dtype);
  if (in + bytes < in || out + bytes < out) return ArgumentFault::kTooLong;
  if (in != out && in < out + bytes && out < in + bytes) return ArgumentFault::kOverlap;
  return ArgumentFault::kNone;
}

std::string fault_text(const AllReduceCall& call, ArgumentFault fault) {
  switch (fault) {
    case ArgumentFault::kNone: return {};
    case ArgumentFault::kDType:
      return fmt::format("dtype {} is unknown; use one of DType (0 to {})", static_cast<int>(call.dtype),
                         kDTypeCount - 1);
    case ArgumentFault::kOp:
      return fmt::format("op {} is unknown; use one of ReduceOp (0 to {})", static_cast<int>(call.op),
                         kReduceOpCount - 1);
    case ArgumentFault::kAlgorithm:
      return fmt::format("algorithm {} is unknown; use kAuto, kRing or kOneShot",
                         static_cast<int>(call.options.algorithm));
    case ArgumentFault::kProtocol:
      return fmt::format("protocol {} is unknown; use kAuto, kLL, kLL128 or kSimple",
                         static_cast<int>(call.options.protocol));
    case ArgumentFault::kTooLong:
      return fmt::format(
          "count {} of {} leaves the address space; give the number of elements, not more than the buffers hold",
          call.count, dtype_name(call.dtype));
    case ArgumentFault::kNullIn:
      return fmt::format("in is null with count {}; null is allowed only with count 0", call.count);
    case ArgumentFault::kNullOut:
      return fmt::format("out is null with count {}; null is allowed only with count 0", call.count);
    case ArgumentFault::kOverlap:
      return fmt::format(
          "in {} and out {} overlap in part over {} elements of {}; give equal pointers (in place) or ranges that do "
          "not touch",
          call.in, call.out, call.count, dtype_name(call.dtype));
  }
  return "unknown fault";
}

}  // namespace ringbell
