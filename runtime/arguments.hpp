// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What can be said of a call without asking a driver or a peer. Pure.
#ifndef RINGBELL_RUNTIME_ARGUMENTS_HPP_
#define RINGBELL_RUNTIME_ARGUMENTS_HPP_

#include "runtime/ringbell.hpp"

namespace ringbell {

enum class ArgumentFault : std::uint8_t {
  kNone,
  kDType,
  kOp,
  kAlgorithm,
  kProtocol,
  kTooLong,  ///< bytes do not fit 63 bits, or the range wraps around
  kNullIn,
  kNullOut,
  kOverlap,
};

ArgumentFault find_fault(const AllReduceCall& call) noexcept;
/// Value and remedy. May allocate.
std::string fault_text(const AllReduceCall& call, ArgumentFault fault);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_ARGUMENTS_HPP_
