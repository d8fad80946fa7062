// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

/// @return 0 or errno
int write_bytes(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

[[noreturn]] void throw_file(const std::string& path, const char* what, int error) {
  throw ExitError(kExitEnvironment, std::string(what) + " '" + path + "': " + std::strerror(error));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

void write_all(int fd, std::string_view text) {
  const int error = write_bytes(fd, text);
  if (error == EPIPE) throw ExitError(kExitSignal + SIGPIPE, "");
  if (error != 0) {
    throw ExitError(kExitEnvironment, std::string("cannot write to ") +
                                          (fd == STDOUT_FILENO ? "standard output" : "standard error") + ": " +
                                          std::strerror(error));
  }
}

void print(std::string_view text) { write_all(STDOUT_FILENO, text); }

void complain(std::string_view text) noexcept { static_cast<void>(write_bytes(STDERR_FILENO, text)); }

void replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".new." + std::to_string(getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) throw_file(temporary, "cannot create", errno);
  int error = write_bytes(fd, text);
  if (error == 0 && fsync(fd) != 0 && errno != EINVAL) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    throw_file(path, "cannot write", error);
  }
}

void check_replaceable(const std::string& path) {
  const std::string folder = folder_of(path);
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_file(path, "cannot write", errno);
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw ExitError(kExitEnvironment, "cannot write '" + path + "': it is there and no file");
  }
}

}  // namespace ringbell::tools
