// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What perf answers about CUDA streams when it is built without CUDA.
#include "tools/exit_codes.hpp"
#include "tools/work_stream.hpp"

namespace ringbell::tools {

std::unique_ptr<WorkStream> make_cuda_work_stream() {
  throw ExitError(kExitEnvironment,
                  "this program was built without CUDA: use --device cpu, or build where nvcc is found");
}

}  // namespace ringbell::tools
