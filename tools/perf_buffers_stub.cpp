// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What perf answers about GPUs when it is built without CUDA.
#include "tools/exit_codes.hpp"
#include "tools/perf_buffers.hpp"

namespace ringbell::tools {

std::unique_ptr<Buffers> make_cuda_buffers(int /*device*/, std::uint64_t /*bytes*/, bool /*flushes*/,
                                           const DeviceMemory& /*memory*/) {
  throw ExitError(kExitEnvironment,
                  "this program was built without CUDA: use --device cpu, or build where nvcc is found");
}

}  // namespace ringbell::tools
