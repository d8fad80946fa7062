// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/visible_devices.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "runtime/session.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

constexpr std::size_t kMostText = 2000;  // below PIPE_BUF: one write, one read

[[noreturn]] void answer(int pipe_end) {
  std::string why;
  const int count = std::clamp(session::cuda_device_count(&why), 0, 255);
  why.resize(std::min(why.size(), kMostText));
  static_cast<void>(!write(pipe_end, why.data(), why.size()));
  _exit(count);
}

}  // namespace

int visible_devices(std::string* why) {
  int ends[2];
  if (pipe(ends) != 0) throw ExitError(kExitEnvironment, std::string("pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) throw ExitError(kExitEnvironment, std::string("fork: ") + std::strerror(errno));
  if (child == 0) answer(ends[1]);
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) text = "the process that asked the driver was ended by a signal";
  const int count = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (count == 0 && why != nullptr) *why = text;
  return count;
}

}  // namespace ringbell::tools
