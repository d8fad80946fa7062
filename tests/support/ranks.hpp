// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// N ranks as threads of this process or as forked processes, one result per rank, nothing that can hang for ever; and
// looks at what a process holds. What the ranks do is the test's.
#ifndef RINGBELL_TESTS_SUPPORT_RANKS_HPP_
#define RINGBELL_TESTS_SUPPORT_RANKS_HPP_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <sys/types.h>

#include "runtime/ringbell.hpp"

namespace ringbell::test {

/// What limits and expected times are multiplied by: 5 under a sanitizer, more on a machine that is busy already.
double patience();
bool is_sanitized();
/// True if the run was started with a filter that has these words: for tests that take too long to run by default.
bool asked_for(const char* words);

/// Ends the whole process with a text when it is not destroyed in time: a hang is a failure, told where it is.
class Watchdog {
 public:
  explicit Watchdog(std::string what, double seconds = 120);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

/// A Config for CPU ranks whose calls cannot wait longer than a test may take.
Config cpu_config();

/// What escaped from a rank's body, as text.
std::string exception_text(const std::exception_ptr& error);
/// Adds a failure to the running test.
void report_rank_failure(int rank, const std::string& text);

/// Runs body(rank) on `world` threads. An exception in a rank fails the test and leaves that rank's result as it is
/// made by Result{}.
template <class Body>
auto run_threads(int world, Body body, double limit_s = 120) {
  using Result = std::invoke_result_t<Body&, int>;
  static_assert(!std::is_same_v<Result, bool>, "threads must not write to one word of a vector<bool>");
  const Watchdog watchdog("ranks as threads", limit_s);
  std::vector<Result> results(static_cast<std::size_t>(world));
  std::vector<std::string> errors(results.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results[static_cast<std::size_t>(rank)] = body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = exception_text(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < world; ++rank) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    if (!error.empty()) report_rank_failure(rank, error);
  }
  return results;
}

/// Runs body(comm) on `world` threads, each with its Communicator of one group.
template <class Body>
auto run_ranks(int world, const Config& config, Body body, double limit_s = 120) {
  const UniqueId id = unique_id_create();
  return run_threads(
      world,
      [&](int rank) {
        Communicator comm(id, rank, world, config);
        return body(comm);
      },
      limit_s);
}

/// Waits and turns anything but kOk into a text with last_error().
std::string wait_ok(Communicator& comm, const Ticket& ticket);

// ---- processes ------------------------------------------------------------------------------------------------------

/// Words in memory that forked processes share. Zero at first.
class SharedWords {
 public:
  explicit SharedWords(std::size_t count);
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  std::atomic<std::uint64_t>& operator[](std::size_t i) { return words_[i]; }
  /// Polls until word `i` is at least `value`; false after `seconds`.
  bool await(std::size_t i, std::uint64_t value, double seconds = 20);

 private:
  std::atomic<std::uint64_t>* words_;
  std::size_t count_;
};

struct ProcessResult {
  int code = -1;     ///< exit code; -1: ended by a signal
  int signal = 0;    ///< 0: exited
  std::string text;  ///< what body returned, or the exception
};

/// Forks one process per rank; each runs body(rank) and leaves by _exit: 0 when the text is empty, else 1, 2 after an
/// exception. Start it while this process has no other threads.
class RankProcesses {
 public:
  RankProcesses(int world, const std::function<std::string(int rank)>& body, double limit_s = 120);
  ~RankProcesses();  ///< kills what still runs
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void signal(int rank, int number);
  /// Waits for the end of that rank's process; past the limit all are killed and the test fails.
  ProcessResult wait(int rank);
  std::vector<ProcessResult> wait_all();
  [[nodiscard]] pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid; }

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;
    bool reaped = false;
    ProcessResult result;
  };
  std::vector<Child> children_;
  std::chrono::steady_clock::time_point limit_;
};

// ---- what is left behind --------------------------------------------------------------------------------------------

/// True while the group's segment has a name in /dev/shm.
bool segment_is_named(const UniqueId& id);
std::size_t open_fds();
std::size_t thread_count();
/// Mappings of this process: of files, those in shared memory among them, and all others.
struct MapCount {
  std::size_t files = 0;
  std::size_t anonymous = 0;
};
MapCount map_count();

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
void sleep_s(double seconds);

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_RANKS_HPP_
