// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/nccl_library.hpp"

#include <algorithm>
#include <string>

#include <dlfcn.h>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

template <class Function>
void find(void* library, const char* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw ExitError(kExitEnvironment, std::string(file) + " has no " + name + ": is it NCCL?");
  }
}

}  // namespace

NcclLibrary open_nccl(const char* file, int needed) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    throw ExitError(kExitEnvironment, std::string("NCCL cannot be opened: ") + (error != nullptr ? error : file) +
                                          "; install libnccl2 or name its folder in LD_LIBRARY_PATH");
  }
  NcclLibrary nccl{};
  NcclFunctions& call = nccl.call;
  find(library, file, "ncclGetVersion", call.get_version);
  if (call.get_version(&nccl.version) != kNcclOk) throw ExitError(kExitEnvironment, "ncclGetVersion failed");
  const std::string refusal = nccl_version_refusal(nccl.version, std::max(needed, kNcclOldest));
  if (!refusal.empty()) throw ExitError(kExitEnvironment, refusal);
  find(library, file, "ncclGetErrorString", call.get_error_string);
  find(library, file, "ncclGetLastError", call.get_last_error);
  find(library, file, "ncclGetUniqueId", call.get_unique_id);
  find(library, file, "ncclCommInitRank", call.comm_init_rank);
  find(library, file, "ncclAllReduce", call.all_reduce);
  find(library, file, "ncclCommDestroy", call.comm_destroy);
  find(library, file, "ncclCommAbort", call.comm_abort);
  if (needed < kNcclWithWindows) return nccl;
  find(library, file, "ncclMemAlloc", call.mem_alloc);
  find(library, file, "ncclMemFree", call.mem_free);
  find(library, file, "ncclCommWindowRegister", call.window_register);
  find(library, file, "ncclCommWindowDeregister", call.window_deregister);
  return nccl;
}

}  // namespace ringbell::tools
