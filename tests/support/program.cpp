// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/program.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace ringbell::test {
namespace {

std::string program_path() {
  if (const char* const path = std::getenv("RINGBELL_PROGRAM")) return path;
  // In a bundle, and by hand: beside the tests' folder.
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "ringbell").string();
}

}  // namespace

Running::Running(const std::string& shell_command, double limit_s)
    : pid_(0), folder_(make_folder()), limit_s_(limit_s) {
  const std::string program = program_path();
  const std::string out = folder_ + "/out";
  const std::string err = folder_ + "/err";
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ != 0) return;
  setpgid(0, 0);
  setenv("RINGBELL", program.c_str(), 1);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", shell_command.c_str(), nullptr);
  _exit(127);
}

Running::~Running() {
  if (pid_ != 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  remove_folder(folder_);
}

Outcome Running::wait() {
  int status = 0;
  const bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit_s_);
  if (!ended) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = 0;
  Outcome outcome;
  outcome.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.out = file_text(folder_ + "/out");
  outcome.err = file_text(folder_ + "/err");
  return outcome;
}

Outcome run_program(const std::string& shell_command, double limit_s) { return Running(shell_command, limit_s).wait(); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool file_exists(const std::string& path) { return std::filesystem::exists(path); }

std::string make_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "ringbell-test-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path);
  return path;
}

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream text(file_text("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; text >> child;) children.push_back(child);
  return children;
}

bool is_alive(pid_t pid) {
  const std::string stat = file_text("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] != 'Z' &&
         stat[name_end + 2] != 'X';
}

void sleep_seconds(double seconds) {
  timespec time{static_cast<time_t>(seconds),
                static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  nanosleep(&time, nullptr);
}

}  // namespace ringbell::test
