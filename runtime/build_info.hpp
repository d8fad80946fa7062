// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What this build is, at run time. Not the generated header itself, whose includers recompile at every commit.
#ifndef RINGBELL_RUNTIME_BUILD_INFO_HPP_
#define RINGBELL_RUNTIME_BUILD_INFO_HPP_

namespace ringbell {

struct BuildInfo {
  const char* version;
  const char* commit;         ///< full hash, or "unknown"
  bool dirty;                 ///< sources differ from the commit
  const char* cuda;           ///< toolkit version, or "none"
  const char* architectures;  ///< "80 90", or "none"
  const char* build_type;
  const char* compiler;
};

const BuildInfo& build_info() noexcept;

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_BUILD_INFO_HPP_
