// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks as forks that never exec, and the set-up that each of them runs: for tests of segment and fence.
#ifndef RINGBELL_TESTS_SUPPORT_SET_UP_PROCESS_HPP_
#define RINGBELL_TESTS_SUPPORT_SET_UP_PROCESS_HPP_

#include <functional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/ringbell_error.hpp"
#include "host/fence.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {

inline constexpr SegmentGeometry kGeometry{2 * kPageBytes, 16 * kPageBytes};
inline constexpr double kInitSeconds = 30;

/// A forked process that runs `body`; its exit code is the Status of the Error it threw, its text comes by a pipe.
class Rank {
 public:
  explicit Rank(const std::function<void()>& body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      std::string text;
      int code = 0;
      try {
        body();
      } catch (const Error& error) {
        text = error.what();
        code = static_cast<int>(error.status());
      }
      const ssize_t ignored = write(ends[1], text.data(), text.size());
      _exit(ignored < 0 ? 99 : code);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Rank() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    ::close(out_);
  }
  Rank(Rank&& other) noexcept : pid_(other.pid_), out_(other.out_), status_(other.status_) {
    other.pid_ = -1;
    other.out_ = -1;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for the end. @return "" for success, "status 5: text", or "signal 9".
  std::string result() {
    std::string text;
    char buffer[1024];
    for (ssize_t got; (got = read(out_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    wait();
    if (WIFSIGNALED(status_)) return "signal " + std::to_string(WTERMSIG(status_));
    return WEXITSTATUS(status_) == 0 ? "" : "status " + std::to_string(WEXITSTATUS(status_)) + ": " + text;
  }

 private:
  void wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  int status_ = 0;
};

inline std::string status_is(Status status) { return "status " + std::to_string(static_cast<int>(status)) + ": "; }

/// The whole set-up and teardown of one rank; `at` runs when the phase has been reached.
inline void set_up(
    const UniqueId& id, int rank, int world, const SegmentGeometry& geometry = kGeometry,
    const std::function<void(Segment&, Phase)>& at = [](Segment&, Phase) {}) {
  const auto deadline = Deadline::after_seconds(kInitSeconds);
  Segment segment = Segment::create_or_open(id, rank, world, geometry, deadline);
  Liveness liveness(segment);
  Fence fence(segment, liveness);
  at(segment, Phase::kClaimed);
  for (std::byte& byte : segment.control(rank)) byte = static_cast<std::byte>(rank + 1);
  for (std::byte& byte : segment.window(rank)) byte = static_cast<std::byte>(rank + 1);
  fence.publish(Phase::kWritten);
  at(segment, Phase::kWritten);
  fence.wait_all(Phase::kWritten, deadline);
  for (int peer = 0; peer < world; ++peer) {
    if (segment.same_process(peer) != (peer == rank)) throw Error(Status::kSystem, "processes mixed up");
    for (const std::byte byte : segment.window(peer)) {
      if (byte != static_cast<std::byte>(peer + 1)) throw Error(Status::kMismatch, "a window holds other bytes");
    }
  }
  fence.publish(Phase::kOpened);
  at(segment, Phase::kOpened);
  fence.wait_all(Phase::kOpened, deadline);
  fence.publish(Phase::kClosed);
  std::string why;
  const Status closed = fence.try_wait_all(Phase::kClosed, deadline, &why);
  if (closed != Status::kOk) throw Error(closed, why);
}

inline bool name_exists(const UniqueId& id) {
  struct stat info {};
  return lstat(("/dev/shm" + unique_id_segment_name(id)).c_str(), &info) == 0;
}

inline bool eventually(const std::function<bool()>& true_now) {
  for (int i = 0; i < 3000; ++i) {
    if (true_now()) return true;
    usleep(5000);
  }
  return false;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace ringbell::host

#endif  // RINGBELL_TESTS_SUPPORT_SET_UP_PROCESS_HPP_
