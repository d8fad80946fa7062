// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/process_start.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"

extern char** environ;  // NOLINT

namespace ringbell::tools {
namespace {

[[noreturn]] void throw_system(const std::string& what, int error = errno) {
  throw ExitError(kExitEnvironment, what + ": " + std::strerror(error));
}

std::vector<std::string> environment_of(const GroupPlan& plan, int rank) {
  const std::string number = std::to_string(rank);
  const std::string world = std::to_string(plan.ranks);
  std::map<std::string, std::string> own = plan.environment;
  own["RINGBELL_RANK"] = own["RINGBELL_LOCAL_RANK"] = own["RANK"] = own["LOCAL_RANK"] = number;
  own["RINGBELL_WORLD"] = own["WORLD_SIZE"] = own["LOCAL_WORLD_SIZE"] = world;
  own["RINGBELL_SESSION"] = plan.session;
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const bool unset = std::find(plan.unset.begin(), plan.unset.end(), name) != plan.unset.end();
    if (!unset && own.find(name) == own.end()) all.emplace_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

struct ChildPlan {
  const std::vector<char*>& argv;
  const std::vector<char*>& envp;
  int out;
  int err;
  int failure;
};

// In the child. The process had one thread, so anything may be called here.
[[noreturn]] void become_rank(const GroupPlan& plan, int rank, pid_t parent, const sigset_t& mask,
                              const ChildPlan& child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitEnvironment);  // it died before the line above
  // An own process group: a signal reaches what the command starts, and a terminal's Ctrl-C comes once, through us.
  setpgid(0, 0);
  if (rank != 0 || isatty(STDIN_FILENO) == 1) {  // a background group that reads a terminal would be stopped
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
  }
  if (child.out >= 0) dup2(child.out, STDOUT_FILENO);
  if (child.err >= 0) dup2(child.err, STDERR_FILENO);
  for (const int fd : plan.inherited_fds) fcntl(fd, F_SETFD, 0);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(child.argv[0], child.argv.data(), child.envp.data());
  const int error = errno;
  static_cast<void>(!write(child.failure, &error, sizeof(error)));
  _exit(kExitEnvironment);
}

}  // namespace

StartedRank start_rank(const GroupPlan& plan, int rank, const sigset_t& mask) {
  std::vector<std::string> arguments = plan.command;
  std::vector<std::string> variables = environment_of(plan, rank);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  int out[2] = {-1, plan.output_fd};
  int err[2] = {-1, plan.output_fd};
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) throw_system("pipe");
  if (plan.tag && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)) throw_system("pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_system("fork of rank " + std::to_string(rank));
  if (pid == 0) become_rank(plan, rank, parent, mask, {argv, envp, out[1], err[1], failure[1]});
  setpgid(pid, pid);  // also done by the child: whoever is first
  close(failure[1]);
  if (plan.tag) {
    close(out[1]);
    close(err[1]);
  }
  int error = 0;
  const bool failed = read(failure[0], &error, sizeof(error)) == sizeof(error);  // end of file: exec closed it
  close(failure[0]);
  if (!failed) return {pid, out[0], err[0]};
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  for (const int fd : {out[0], err[0]}) {
    if (fd >= 0) close(fd);
  }
  throw_system("cannot start '" + plan.command.front() + "'", error);
}

}  // namespace ringbell::tools
