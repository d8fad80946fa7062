// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/private_shm.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ringbell::test {
namespace {

bool write_file(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

bool enter_mount_namespace() {
  if (unshare(CLONE_NEWNS) == 0) return true;
  const std::string uid = std::to_string(geteuid());
  const std::string gid = std::to_string(getegid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", uid + " " + uid + " 1") &&
         write_file("/proc/self/gid_map", gid + " " + gid + " 1");
}

}  // namespace

bool enter_private_shm() {
  return enter_mount_namespace() && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777") == 0;
}

bool may_enter_private_shm() {
  const pid_t child = fork();
  if (child == 0) _exit(enter_private_shm() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

std::vector<std::string> shm_entries() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace ringbell::test
