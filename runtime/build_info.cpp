// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/build_info.hpp"

#include "runtime/version.hpp"

namespace ringbell {

const BuildInfo& build_info() noexcept {
  static constexpr BuildInfo kInfo{build::kVersion,           build::kCommit,    build::kDirty,   build::kCuda,
                                   build::kCudaArchitectures, build::kBuildType, build::kCompiler};
  return kInfo;
}

}  // namespace ringbell
