// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/temporary_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ringbell-perf-";
constexpr std::string_view kAny = "XXXXXX";  // mkdtemp's
constexpr time_t kYoungSeconds = 1;          // its maker may not have locked it yet

bool is_our_folder(const fs::path& path, struct stat& info) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kAny.size() && lstat(path.c_str(), &info) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

session::Object judge(const fs::path& path, const struct stat& info, bool removes) {
  session::Object object{path.string(), "unclear", "",   static_cast<unsigned long long>(info.st_blocks) * 512,
                         false,         false,     false};
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    object.why = std::strerror(errno);
  } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    object.state = "live";
    object.why = "the process that made it locks it";
  } else if (time(nullptr) - info.st_ctim.tv_sec <= kYoungSeconds) {
    object.state = "too early to tell";
    object.why = "it was made or changed just now";
  } else {
    object.state = "stale";
    object.why = "the process that made it is gone";
    object.dead = true;
    std::error_code error;
    if (removes) fs::remove_all(path, error);
    object.removed = removes && !error;
    if (error) object.why += ", but it cannot be removed: " + error.message();
  }
  if (fd >= 0) close(fd);
  return object;
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path_((fs::temp_directory_path() / kPrefix).string().append(kAny)), fd_(-1) {
  if (mkdtemp(path_.data()) == nullptr) {
    throw ExitError(kExitEnvironment, "cannot make the folder " + path_ + ": " + std::strerror(errno));
  }
  // Without the lock it works as well; then a `ringbell clean` beside it takes it for a leftover.
  fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ >= 0) static_cast<void>(flock(fd_, LOCK_EX | LOCK_NB));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (fd_ >= 0) close(fd_);
}

std::vector<session::Object> clean_temporary_folders(bool removes) {
  std::vector<session::Object> objects;
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  std::vector<fs::path> paths;
  if (!error) {
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      paths.push_back(entry->path());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    struct stat info {};
    if (is_our_folder(path, info)) objects.push_back(judge(path, info, removes));
  }
  return objects;
}

}  // namespace ringbell::tools
