// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA executor of a build without CUDA: it says so.
#include "host/error.hpp"
#include "host/executor.hpp"

namespace ringbell::host {

std::unique_ptr<Executor> make_cuda_executor(const ExecutorConfig&) {
  throw_error(Status::kUnsupported, "this ringbell was built without CUDA",
              "build it where nvcc 12.4 or newer is found, or use the CPU executor (RINGBELL_DEVICE=cpu)");
}

int cuda_device_count(std::string* why) noexcept {
  try {
    if (why != nullptr) *why = "this ringbell was built without CUDA";
  } catch (...) {
    // No memory for the text; the count is the answer.
  }
  return 0;
}

}  // namespace ringbell::host
