// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The machine's GPUs as seen by a build without CUDA.
#include "tools/machine.hpp"

namespace ringbell::tools {

CudaMachine describe_cuda() { return {}; }

}  // namespace ringbell::tools
