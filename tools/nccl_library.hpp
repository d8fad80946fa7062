// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL, opened at run time.
#ifndef RINGBELL_TOOLS_NCCL_LIBRARY_HPP_
#define RINGBELL_TOOLS_NCCL_LIBRARY_HPP_

#include "tools/nccl_abi.hpp"

namespace ringbell::tools {

struct NcclLibrary {
  NcclFunctions call;
  int version;
};

/// It stays open for the process's life. NCCL reads NCCL_* variables here and later: set them before.
/// @param needed the oldest version that will do
/// @throws ExitError(kExitEnvironment): not found, too old, or without a function
NcclLibrary open_nccl(const char* file, int needed);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_NCCL_LIBRARY_HPP_
