// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL in a program built without CUDA.
#include "tools/exit_codes.hpp"
#include "tools/peer_nccl.hpp"

namespace ringbell::tools {

void nccl_rank(const PerfOptions& /*options*/, const session::Place& /*place*/, int /*device*/, Turns& /*turns*/) {
  throw ExitError(kExitEnvironment, "this program was built without CUDA: build where nvcc is found");
}

}  // namespace ringbell::tools
