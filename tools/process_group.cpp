// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/process_group.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"
#include "tools/process_start.hpp"
#include "tools/tagged_output.hpp"

namespace ringbell::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void throw_system(const std::string& what, int error = errno) {
  throw ExitError(kExitEnvironment, what + ": " + std::strerror(error));
}

/// Holds back the signals that are read from a descriptor, for the job's life.
class SignalSource {
 public:
  SignalSource() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
    signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would reap behind our back
    sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) {
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      throw_system("signalfd");
    }
  }
  ~SignalSource() {
    close(fd_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }
  /// @return the next signal, 0 when there is none
  [[nodiscard]] int next() const noexcept {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  int fd_ = -1;
};

/// The processes of one plan.
class Group {
 public:
  explicit Group(const GroupPlan& plan) : plan_(plan), pids_(static_cast<std::size_t>(plan.ranks)) {}

  /// @throws ExitError: one could not be started; those before it live
  void start(const sigset_t& mask, TaggedOutput& output) {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const StartedRank started = start_rank(plan_, rank, mask);
      pids_[static_cast<std::size_t>(rank)] = started.pid;
      if (!plan_.tag) continue;
      output.add(started.out, STDOUT_FILENO, rank);
      output.add(started.err, STDERR_FILENO, rank);
    }
  }

  [[nodiscard]] bool alive() const {
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
  }

  // Once and as it came. After SIGTERM and SIGHUP the grace runs; SIGINT alone leaves the ranks time to finish what
  // they do, a second signal of any kind does not.
  void pass_on(int number) {
    const bool again = result.received != 0;
    if (!again) result.received = number;
    send(number);
    if (again || number != SIGINT) start_grace();
  }

  void stop() {
    if (stopping_) return;
    stopping_ = true;
    if (result.received != SIGTERM) send(SIGTERM);
    start_grace();
  }

  /// Time to end by itself, then SIGKILL.
  void start_grace() {
    if (!grace_runs_) kill_at_ = Clock::now() + kGrace;
    grace_runs_ = true;
  }

  /// @return milliseconds until keep_grace() has something to do, -1 for never
  [[nodiscard]] int grace_left_ms() const {
    if (kill_at_ == Clock::time_point{} || !alive()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_ - Clock::now()).count();
    return static_cast<int>(std::max<decltype(left)>(left, 0));
  }
  void keep_grace() {
    if (kill_at_ == Clock::time_point{} || Clock::now() < kill_at_) return;
    send(SIGKILL);
    kill_at_ = {};
  }

  /// @return false when the process was none of these
  bool ended(pid_t pid, int status) {
    const auto found = std::find(pids_.begin(), pids_.end(), pid);
    if (found == pids_.end()) return false;
    *found = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (result.failed_rank < 0) {
      result.failed_rank = static_cast<int>(found - pids_.begin());
      if (WIFSIGNALED(status)) {
        result.signal = WTERMSIG(status);
      } else {
        result.exit_code = WEXITSTATUS(status);
      }
    }
    stop();
    return true;
  }

  GroupResult result;
  bool told = false;  ///< of a side: its end

 private:
  void send(int number) const {
    for (const pid_t pid : pids_) {
      if (pid != 0) kill(-pid, number);
    }
  }

  const GroupPlan& plan_;
  std::vector<pid_t> pids_;  ///< each also a process group; 0: gone
  bool stopping_ = false;
  bool grace_runs_ = false;
  Clock::time_point kill_at_{};
};

/// The main group, first, and the sides.
class Job {
 public:
  Job(const GroupPlan& plan, const SideGroups* sides) : sides_(sides) {
    groups_.emplace_back(plan);
    if (sides == nullptr) return;
    for (const GroupPlan& side : sides->plans) groups_.emplace_back(side);
  }

  GroupResult run() {
    try {
      groups_.front().start(signals_.before(), output_);
    } catch (...) {
      groups_.front().stop();
      while (alive()) turn();
      throw;
    }
    for (std::size_t side = 1; side < groups_.size(); ++side) {
      try {
        groups_[side].start(signals_.before(), output_);
      } catch (const ExitError& error) {
        groups_[side].result.error = error.what();
        groups_[side].stop();
      }
    }
    tell_ends();
    while (alive()) turn();
    output_.finish();
    return groups_.front().result;
  }

 private:
  [[nodiscard]] bool alive() const {
    return std::any_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.alive(); });
  }

  [[nodiscard]] int wait_ms() const {
    constexpr int kLookMs = 200;  // for sides that are not wanted any more
    int shortest = groups_.size() > 1 ? kLookMs : -1;
    for (const Group& group : groups_) {
      const int left = group.grace_left_ms();
      if (left >= 0 && (shortest < 0 || left < shortest)) shortest = left;
    }
    return shortest;
  }

  // One wait for whatever comes first: a signal, a rank's end, output, the end of a grace.
  void turn() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    output_.add_polled(polled);
    if (poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR) throw_system("poll");
    output_.copy(polled.data() + 1);
    while (const int number = signals_.next()) {
      if (number == SIGCHLD) continue;
      for (Group& group : groups_) group.pass_on(number);
    }
    reap();
    for (std::size_t side = 1; side < groups_.size(); ++side) {
      if (groups_[side].alive() && sides_->unwanted(side - 1)) groups_[side].stop();
    }
    for (Group& group : groups_) group.keep_grace();
    tell_ends();
  }

  void reap() {
    int status = 0;
    while (const pid_t pid = waitpid(-1, &status, WNOHANG)) {
      if (pid < 0) break;
      for (Group& group : groups_) {
        if (group.ended(pid, status)) break;
      }
    }
  }

  void tell_ends() {
    const bool main_alive = groups_.front().alive();
    for (std::size_t side = 1; side < groups_.size(); ++side) {
      Group& group = groups_[side];
      if (groups_.front().result.failed_rank >= 0) {
        group.stop();
      } else if (!main_alive) {
        group.start_grace();  // it knows that there are no more turns
      }
      if (group.alive() || group.told) continue;
      group.told = true;
      sides_->ended(side - 1, group.result);
    }
  }

  const SideGroups* sides_;
  SignalSource signals_;
  std::vector<Group> groups_;
  TaggedOutput output_;
};

}  // namespace

GroupResult run_group(const GroupPlan& plan, const SideGroups* sides) { return Job(plan, sides).run(); }

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  int port = 29500;  // torch's default
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  if (fd >= 0) close(fd);
  return port;
}

}  // namespace ringbell::tools
