// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/process_group.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"
#include "tools/output.hpp"

extern char** environ;  // NOLINT

namespace ringbell::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void throw_system(const std::string& what, int error = errno) {
  throw ExitError(kExitEnvironment, what + ": " + std::strerror(error));
}

/// Holds back the signals that are read from a descriptor, for the group's life.
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

struct TaggedStream {
  int fd;
  int target;
  std::string prefix;
  std::string partial;
};

struct Child {
  pid_t pid = 0;  ///< also its process group; 0: gone
};

class Group {
 public:
  explicit Group(const GroupPlan& plan) : plan_(plan), children_(static_cast<std::size_t>(plan.ranks)) {}
  ~Group() {
    for (const TaggedStream& stream : streams_) close(stream.fd);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  GroupResult run() {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      try {
        start(rank);
      } catch (...) {
        stop_all();
        while (alive()) turn();
        throw;
      }
    }
    while (alive()) turn();
    for (TaggedStream& stream : streams_) {
      copy_lines(stream);
      if (!stream.partial.empty()) emit(stream, stream.partial + "\n");
    }
    return result_;
  }

 private:
  [[nodiscard]] bool alive() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.pid != 0; });
  }

  std::vector<std::string> environment(int rank) const {
    const std::string number = std::to_string(rank);
    const std::string world = std::to_string(plan_.ranks);
    std::map<std::string, std::string> own = plan_.environment;
    own["RINGBELL_RANK"] = own["RINGBELL_LOCAL_RANK"] = own["RANK"] = own["LOCAL_RANK"] = number;
    own["RINGBELL_WORLD"] = own["WORLD_SIZE"] = own["LOCAL_WORLD_SIZE"] = world;
    own["RINGBELL_SESSION"] = plan_.session;
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::string name(text.substr(0, text.find('=')));
      const bool unset = std::find(plan_.unset.begin(), plan_.unset.end(), name) != plan_.unset.end();
      if (!unset && own.find(name) == own.end()) all.emplace_back(text);
    }
    for (const auto& [name, value] : own) all.push_back(name + "=" + value);
    return all;
  }

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  }

  void start(int rank) {
    std::vector<std::string> arguments = plan_.command;
    std::vector<std::string> variables = environment(rank);
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(variables);
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) throw_system("pipe");
    if (plan_.tag && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)) throw_system("pipe");
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw_system("fork of rank " + std::to_string(rank));
    if (pid == 0) become_rank(rank, parent, argv, envp, out[1], err[1], failure[1]);
    setpgid(pid, pid);  // also done by the child: whoever is first
    children_[static_cast<std::size_t>(rank)].pid = pid;
    close(failure[1]);
    if (plan_.tag) {
      close(out[1]);
      close(err[1]);
      add_stream(out[0], STDOUT_FILENO, rank);
      add_stream(err[0], STDERR_FILENO, rank);
    }
    int error = 0;
    const bool failed = read(failure[0], &error, sizeof(error)) == sizeof(error);  // end of file: exec closed it
    close(failure[0]);
    if (failed) throw_system("cannot start '" + plan_.command.front() + "'", error);
  }

  // In the child. The process had one thread, so anything may be called here.
  [[noreturn]] void become_rank(int rank, pid_t parent, const std::vector<char*>& argv, const std::vector<char*>& envp,
                                int out, int err, int failure) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitEnvironment);  // it died before the line above
    // An own process group: a signal reaches what the command starts, and a terminal's Ctrl-C comes once, through us.
    setpgid(0, 0);
    if (rank != 0 || isatty(STDIN_FILENO) == 1) {  // a background group that reads a terminal would be stopped
      const int null = open("/dev/null", O_RDONLY);
      if (null >= 0) dup2(null, STDIN_FILENO);
    }
    if (out >= 0) dup2(out, STDOUT_FILENO);
    if (err >= 0) dup2(err, STDERR_FILENO);
    if (plan_.inherited_fd >= 0) fcntl(plan_.inherited_fd, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    static_cast<void>(!write(failure, &error, sizeof(error)));
    _exit(kExitEnvironment);
  }

  void add_stream(int fd, int target, int rank) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    std::string prefix = std::to_string(rank);  // not "[" + ..: gcc 12 takes that for an overlapping copy
    prefix.insert(0, 1, '[').append("] ");
    streams_.push_back({fd, target, std::move(prefix), ""});
  }

  // One wait for whatever comes first: a signal, a rank's end, output, the end of the grace.
  void turn() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    for (const TaggedStream& stream : streams_) polled.push_back({stream.fd, POLLIN, 0});
    int timeout = -1;
    if (kill_at_ != Clock::time_point{}) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_ - Clock::now()).count();
      timeout = static_cast<int>(std::max<decltype(left)>(left, 0));
    }
    if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) throw_system("poll");
    for (std::size_t i = streams_.size(); i > 0; --i) {
      if (polled[i].revents == 0) continue;
      TaggedStream& stream = streams_[i - 1];
      if (copy_lines(stream)) continue;
      if (!stream.partial.empty()) emit(stream, stream.partial + "\n");
      close(stream.fd);
      streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
    while (const int number = signals_.next()) {
      if (number != SIGCHLD) pass_on(number);
    }
    reap();
    if (kill_at_ != Clock::time_point{} && Clock::now() >= kill_at_) {
      send(SIGKILL);
      kill_at_ = {};
    }
  }

  // Once and as it came. After SIGTERM and SIGHUP the grace runs; SIGINT alone leaves the ranks time to finish what
  // they do, a second signal of any kind does not.
  void pass_on(int number) {
    const bool again = result_.received != 0;
    if (!again) result_.received = number;
    send(number);
    if (again || number != SIGINT) start_grace();
  }

  void stop_all() {
    if (stopping_) return;
    stopping_ = true;
    if (result_.received != SIGTERM) send(SIGTERM);
    start_grace();
  }

  void start_grace() {
    if (!grace_runs_) kill_at_ = Clock::now() + kGrace;
    grace_runs_ = true;
  }

  void send(int number) const {
    for (const Child& child : children_) {
      if (child.pid != 0) kill(-child.pid, number);
    }
  }

  void reap() {
    int status = 0;
    while (const pid_t pid = waitpid(-1, &status, WNOHANG)) {
      if (pid < 0) break;
      const auto found = std::find_if(children_.begin(), children_.end(), [&](const Child& c) { return c.pid == pid; });
      if (found == children_.end()) continue;
      found->pid = 0;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (result_.failed_rank < 0) {
        result_.failed_rank = static_cast<int>(found - children_.begin());
        if (WIFSIGNALED(status)) {
          result_.signal = WTERMSIG(status);
        } else {
          result_.exit_code = WEXITSTATUS(status);
        }
      }
      stop_all();
    }
  }

  /// @return false at the end of the stream
  static bool copy_lines(TaggedStream& stream) {
    char buffer[8192];
    for (;;) {
      const ssize_t count = read(stream.fd, buffer, sizeof(buffer));
      if (count == 0) return false;
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      stream.partial.append(buffer, static_cast<std::size_t>(count));
      const std::size_t end = stream.partial.rfind('\n');
      if (end == std::string::npos) continue;
      std::string lines;
      for (std::size_t begin = 0; begin <= end;) {
        const std::size_t line_end = stream.partial.find('\n', begin);
        lines += stream.prefix + stream.partial.substr(begin, line_end + 1 - begin);
        begin = line_end + 1;
      }
      stream.partial.erase(0, end + 1);
      write_all(stream.target, lines);
    }
  }

  static void emit(const TaggedStream& stream, const std::string& line) {
    write_all(stream.target, stream.prefix + line);
  }

  const GroupPlan& plan_;
  SignalSource signals_;
  std::vector<Child> children_;
  std::vector<TaggedStream> streams_;
  GroupResult result_;
  bool stopping_ = false;
  bool grace_runs_ = false;
  Clock::time_point kill_at_{};
};

}  // namespace

GroupResult run_group(const GroupPlan& plan) { return Group(plan).run(); }

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
