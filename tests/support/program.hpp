// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the program `ringbell` (RINGBELL_PROGRAM) as a user would and keeps what it said. For process tests.
#ifndef RINGBELL_TESTS_SUPPORT_PROGRAM_HPP_
#define RINGBELL_TESTS_SUPPORT_PROGRAM_HPP_

#include <string>
#include <vector>

#include <sys/types.h>

namespace ringbell::test {

struct Outcome {
  int code = -1;  ///< exit code, or 128 + signal, as a shell counts
  std::string out;
  std::string err;
};

/// A shell command line that is running; $RINGBELL stands for the program. It is killed with its process group after
/// `limit_s` (code 128 + 9), and at the end of the object's life.
class Running {
 public:
  explicit Running(const std::string& shell_command, double limit_s = 50);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  Outcome wait();

 private:
  pid_t pid_;
  std::string folder_;
  double limit_s_;
};

/// Starts it and waits.
Outcome run_program(const std::string& shell_command, double limit_s = 50);

std::vector<std::string> lines_of(const std::string& text);
std::vector<std::string> words_of(const std::string& line);
/// "" when there is none.
std::string file_text(const std::string& path);
bool file_exists(const std::string& path);
/// A new folder under the system's temporary one, which the caller removes with remove_folder.
std::string make_folder();
void remove_folder(const std::string& path);
/// Direct children of a process, by /proc.
std::vector<pid_t> children_of(pid_t pid);
/// False for zombies too.
bool is_alive(pid_t pid);
/// Asks `condition` until it holds. @return false after `seconds`
template <class Condition>
bool eventually(Condition condition, double seconds = 10);
void sleep_seconds(double seconds);

template <class Condition>
bool eventually(Condition condition, double seconds) {
  for (int turns = static_cast<int>(seconds * 100); turns >= 0; --turns) {
    if (condition()) return true;
    sleep_seconds(0.01);
  }
  return false;
}

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_PROGRAM_HPP_
