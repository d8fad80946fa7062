// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A folder for what perf's processes write while it runs, and those that a perf which was killed left behind.
#ifndef RINGBELL_TOOLS_TEMPORARY_FOLDER_HPP_
#define RINGBELL_TOOLS_TEMPORARY_FOLDER_HPP_

#include <string>
#include <vector>

#include "runtime/session.hpp"

namespace ringbell::tools {

/// A folder of this user's alone, removed at the end. Locked (flock) as long as the process lives that made it.
class TemporaryFolder {
 public:
  /// @throws ExitError(kExitEnvironment)
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
};

/// This user's folders of that kind; those that nobody locks are removed if asked. Never throws for what it cannot
/// read.
std::vector<session::Object> clean_temporary_folders(bool removes);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_TEMPORARY_FOLDER_HPP_
