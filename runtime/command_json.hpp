// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A call as JSON, the same words in a dump and in `ringbell top`.
#ifndef RINGBELL_RUNTIME_COMMAND_JSON_HPP_
#define RINGBELL_RUNTIME_COMMAND_JSON_HPP_

#include <cstdint>

#include <nlohmann/json.hpp>

#include "device/layout/command.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell {

/// seq, call, dtype, op, count, tag, algo, proto, in this order; the caller adds its own fields behind them.
inline nlohmann::ordered_json command_json(std::uint64_t seq, const device::Command& command) {
  return {{"seq", seq},
          {"call", command.kind == device::CommandKind::kNop ? "nop" : "all_reduce"},
          {"dtype", dtype_name(command.dtype)},
          {"op", reduce_op_name(command.op)},
          {"count", command.count},
          {"tag", command.tag},
          {"algo", algorithm_name(command.algorithm)},
          {"proto", protocol_name(command.protocol)}};
}

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_COMMAND_JSON_HPP_
