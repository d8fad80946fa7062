// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/unique_id.hpp"

namespace ringbell::test {
namespace {

std::size_t entries(const char* folder) {
  DIR* dir = opendir(folder);
  if (dir == nullptr) throw std::runtime_error(std::string("cannot read ") + folder);
  std::size_t count = 0;
  while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(dir);
  return count;
}

std::string read_all(int fd) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

[[noreturn]] void run_child(int rank, int pipe, const std::function<std::string(int)>& body, double limit_s) {
  alarm(static_cast<unsigned>(limit_s) + 5);  // should the parent die
  int code = 0;
  std::string text;
  try {
    text = body(rank);
    code = text.empty() ? 0 : 1;
  } catch (...) {
    text = exception_text(std::current_exception());
    code = 2;
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(pipe, text.data() + done, text.size() - done);
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  _exit(code);
}

}  // namespace

bool is_sanitized() {
#if defined(RINGBELL_SANITIZE_BUILD)
  return true;
#else
  return false;
#endif
}

double patience() {
  static const double factor = [] {
    double load[1] = {0};
    if (getloadavg(load, 1) != 1) load[0] = 0;
    const double share = load[0] / static_cast<double>(std::max(1u, std::thread::hardware_concurrency()));
    return std::min(8.0, (is_sanitized() ? 5 : 1) * std::clamp(share, 1.0, 4.0));
  }();
  return factor;
}

bool asked_for(const char* words) { return testing::GTEST_FLAG(filter).find(words) != std::string::npos; }

Watchdog::Watchdog(std::string what, double seconds)
    : thread_([this, what = std::move(what), limit = seconds * patience()] {
        std::unique_lock lock(mutex_);
        if (wake_.wait_for(lock, std::chrono::duration<double>(limit), [this] { return done_; })) return;
        std::fprintf(stderr, "watchdog: %s: not done after %.0f s\n", what.c_str(), limit);
        std::abort();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Config cpu_config() {
  Config config;
  config.device = DeviceKind::kCpu;
  config.timeout_s = 20 * patience();
  config.init_timeout_s = 20 * patience();
  return config;
}

std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::string(status_name(e.status())) + ": " + e.what();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

void report_rank_failure(int rank, const std::string& text) { ADD_FAILURE() << "rank " << rank << ": " << text; }

std::string wait_ok(Communicator& comm, const Ticket& ticket) {
  const Status status = comm.wait(ticket);
  if (status == Status::kOk) return "";
  return std::string("call ") + std::to_string(ticket.seq) + ": " + status_name(status) + ": " + comm.last_error();
}

SharedWords::SharedWords(std::size_t count) : count_(count) {
  void* memory = mmap(nullptr, count * sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  words_ = static_cast<std::atomic<std::uint64_t>*>(memory);
}
SharedWords::~SharedWords() { munmap(static_cast<void*>(words_), count_ * sizeof(std::atomic<std::uint64_t>)); }

bool SharedWords::await(std::size_t i, std::uint64_t value, double seconds) {
  const Stopwatch watch;
  while (words_[i].load() < value) {
    if (watch.seconds() > seconds * patience()) return false;
    sleep_s(0.0005);
  }
  return true;
}

RankProcesses::RankProcesses(int world, const std::function<std::string(int)>& body, double limit_s)
    : children_(static_cast<std::size_t>(world)) {
  const double limit = limit_s * patience();
  limit_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(limit * 1000));
  std::fflush(nullptr);
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      ::close(ends[0]);
      for (const Child& other : children_) {
        if (other.pipe >= 0) ::close(other.pipe);
      }
      run_child(rank, ends[1], body, limit);
    }
    ::close(ends[1]);
    children_[static_cast<std::size_t>(rank)].pid = pid;
    children_[static_cast<std::size_t>(rank)].pipe = ends[0];
  }
}

RankProcesses::~RankProcesses() {
  for (Child& child : children_) {
    if (child.pid > 0 && !child.reaped) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    if (child.pipe >= 0) ::close(child.pipe);
  }
}

void RankProcesses::signal(int rank, int number) { kill(pid(rank), number); }

ProcessResult RankProcesses::wait(int rank) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  bool late = false;
  while (!child.reaped) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) == child.pid) {
      child.reaped = true;
      child.result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      child.result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      child.result.text = read_all(child.pipe);
      break;
    }
    if (!late && std::chrono::steady_clock::now() > limit_) {
      late = true;
      ADD_FAILURE() << "rank " << rank << " (pid " << child.pid << ") still runs at the limit: killed";
      for (const Child& other : children_) {
        if (!other.reaped) kill(other.pid, SIGKILL);
      }
    }
    sleep_s(0.001);
  }
  return child.result;
}

std::vector<ProcessResult> RankProcesses::wait_all() {
  std::vector<ProcessResult> results;
  for (int rank = 0; rank < static_cast<int>(children_.size()); ++rank) results.push_back(wait(rank));
  return results;
}

bool segment_is_named(const UniqueId& id) {
  return access(("/dev/shm" + host::unique_id_segment_name(id)).c_str(), F_OK) == 0;
}
std::size_t open_fds() { return entries("/proc/self/fd"); }
std::size_t thread_count() { return entries("/proc/self/task"); }
MapCount map_count() {
  std::ifstream maps("/proc/self/maps");
  MapCount count;
  // address, permissions, offset, device, inode, path
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string skipped;
    std::uint64_t inode = 0;
    fields >> skipped >> skipped >> skipped >> skipped >> inode;
    ++(inode != 0 ? count.files : count.anonymous);
  }
  return count;
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

}  // namespace ringbell::test
