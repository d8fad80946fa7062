// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of a NCCL peer of --against.
#ifndef RINGBELL_TOOLS_PEER_NCCL_HPP_
#define RINGBELL_TOOLS_PEER_NCCL_HPP_

#include "runtime/session.hpp"
#include "tools/options.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {

/// Measures in turns, or, in a probe's seat, calls once for each row and notes what NCCL's log says of it.
/// @param device CUDA ordinal  @throws ExitError
void nccl_rank(const PerfOptions& options, const session::Place& place, int device, Turns& turns);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PEER_NCCL_HPP_
