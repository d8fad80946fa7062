// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu_ranks.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr const char* kAsRank = "--ringbell-rank-program";
constexpr double kMeetSeconds = 60;
constexpr double kAfterAFailureSeconds = 15;  // for the others, once one rank has failed
constexpr double kAfterAKillSeconds = 15;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}
std::uint64_t in_seconds(double seconds) { return now_ns() + static_cast<std::uint64_t>(seconds * time_scale() * 1e9); }

struct Registered {
  std::string name;
  RankProgram::Body body;
};
std::vector<Registered>& programs() {
  static std::vector<Registered> list;
  return list;
}

std::string hex(const UniqueId& id) {
  std::string text;
  for (const unsigned char byte : id.bytes) {
    char part[3];
    std::snprintf(part, sizeof part, "%02x", byte);
    text += part;
  }
  return text;
}

UniqueId from_hex(std::string_view text) {
  UniqueId id{};
  require(text.size() == 2 * kUniqueIdBytes, "the id given to a rank is cut");
  for (std::size_t i = 0; i < kUniqueIdBytes; ++i) {
    id.bytes[i] = static_cast<unsigned char>(std::stoul(std::string(text.substr(2 * i, 2)), nullptr, 16));
  }
  return id;
}

Board* map_board(int fd) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  require(memory != MAP_FAILED, "the board cannot be mapped");
  return static_cast<Board*>(memory);
}

// Whatever is there now; the writer may have ended long ago.
std::string drain(int fd) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace

double time_scale() {
  const char* text = std::getenv("RINGBELL_TIME_SCALE");
  const double scale = text != nullptr ? std::atof(text) : 1;
  return scale >= 1 ? scale : 1;
}

std::uint64_t number_from_env(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return fallback;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  require(*end == 0 && value != 0, std::string(name) + "='" + text + "': give a whole number above 0");
  return value;
}

// ---- inside a rank --------------------------------------------------------------------------------------------------

Config RankSelf::config() const {
  Config config;
  config.device = DeviceKind::kCuda;
  config.device_ordinal = device();
  config.allow_shared_device = shares_device();
  config.timeout_s = 20;
  config.init_timeout_s = 30;
  return config;
}

void RankSelf::step(const std::string& text, double limit_s) {
  board.deadline_ns[rank_].store(0);
  std::snprintf(board.step[rank_], sizeof board.step[rank_], "%s", text.c_str());
  board.since_ns[rank_].store(now_ns());
  board.deadline_ns[rank_].store(in_seconds(limit_s));
}

void RankSelf::meet() {
  const std::uint64_t mine = board.met[rank_].load() + 1;
  board.met[rank_].store(mine);
  const std::uint64_t limit = in_seconds(kMeetSeconds);
  for (int rank = 0; rank < world_; ++rank) {
    for (unsigned polls = 0; board.met[rank].load() < mine; ++polls) {
      if (polls < 10000) continue;
      std::this_thread::yield();
      if (const std::uint64_t failed = board.failed.load(); failed != 0) {
        throw std::runtime_error("rank " + std::to_string(failed - 1) + " has failed");
      }
      if (now_ns() < limit) continue;
      throw std::runtime_error("rank " + std::to_string(rank) +
                               " did not come to the barrier; its step: " + board.step[rank]);
    }
  }
}

void require_ok(Communicator& comm, Status status, const std::string& what) {
  if (status != Status::kOk) throw std::runtime_error(what + ": " + status_name(status) + ": " + comm.last_error());
}
void require_ok(Communicator& comm, const Ticket& ticket, const std::string& what) {
  require_ok(comm, comm.wait(ticket), what);
}
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

RankProgram::RankProgram(const char* name, Body body) { programs().push_back({name, body}); }

bool ran_as_rank(int argc, char** argv, int* code) {
  if (argc < 2 || std::strcmp(argv[1], kAsRank) != 0) return false;
  // program, rank, world, devices, id, board, pipe, seconds, argument
  std::string text;
  int pipe = -1;
  Board* board = nullptr;
  *code = 2;
  try {
    require(argc == 11, "a rank's command line is cut");
    pipe = std::stoi(argv[8]);
    alarm(static_cast<unsigned>(std::stoul(argv[9])));  // should the test's process die
    board = map_board(std::stoi(argv[7]));
    RankSelf self(std::stoi(argv[3]), std::stoi(argv[4]), std::stoi(argv[5]), from_hex(argv[6]), argv[10], *board);
    self.step("start");
    RankProgram::Body body = nullptr;
    for (const Registered& program : programs()) {
      if (program.name == argv[2]) body = program.body;
    }
    require(body != nullptr, std::string("no rank program is called ") + argv[2]);
    body(self);
    self.step("exit");
    *code = 0;
  } catch (...) {
    text = exception_text(std::current_exception());
    *code = 1;
    std::uint64_t nobody = 0;
    if (board != nullptr) board->failed.compare_exchange_strong(nobody, std::stoul(argv[3]) + 1);
  }
  std::fflush(stdout);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(pipe, text.data() + done, text.size() - done);
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

// ---- the test's side ------------------------------------------------------------------------------------------------

RankGroup::RankGroup(const char* program, const GroupOptions& options)
    : children_(static_cast<std::size_t>(options.world)) {
  require(options.world >= 1 && options.world <= kMostRanks, "a group has 1 to 8 ranks");
  board_fd_ = memfd_create("ringbell-test-board", 0);
  require(board_fd_ >= 0 && ftruncate(board_fd_, sizeof(Board)) == 0, "no memory for the board");
  board_ = map_board(board_fd_);
  limit_ns_ = in_seconds(options.limit_s);
  std::fflush(stdout);

  const std::string id = hex(unique_id_create());
  const auto alarm_s = static_cast<unsigned long>(options.limit_s * time_scale() + kAfterAKillSeconds + 5);
  std::vector<std::string> variables = options.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);  // the first of two wins
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  for (int rank = 0; rank < options.world; ++rank) {
    Child& child = children_[static_cast<std::size_t>(rank)];
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    // The write end alone crosses into the child; as a duplicate, which has no close-on-exec mark.
    const int crossing = dup(ends[1]);
    ::close(ends[1]);
    child.pipe = ends[0];
    fcntl(child.pipe, F_SETFL, O_NONBLOCK);  // read once, after the end: nobody is waited for
    std::vector<std::string> words = {"/proc/self/exe",
                                      kAsRank,
                                      program,
                                      std::to_string(rank),
                                      std::to_string(options.world),
                                      std::to_string(options.devices),
                                      id,
                                      std::to_string(board_fd_),
                                      std::to_string(crossing),
                                      std::to_string(alarm_s),
                                      options.argument};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error = posix_spawn(&child.pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data());
    ::close(crossing);
    if (error != 0) {
      child.pid = -1;
      child.reaped = true;
      child.result.text = std::string("cannot be started: ") + std::strerror(error);
    }
  }
}

RankGroup::~RankGroup() {
  kill_all();
  for (Child& child : children_) {
    for (int tries = 0; !child.reaped && tries < 5000; ++tries) {
      if (waitpid(child.pid, nullptr, WNOHANG) == child.pid) child.reaped = true;
      if (!child.reaped) sleep_s(0.001);
    }
    if (child.pipe >= 0) ::close(child.pipe);
  }
  munmap(static_cast<void*>(board_), sizeof(Board));
  ::close(board_fd_);
}

void RankGroup::signal(int rank, int number) {
  const Child& child = children_[static_cast<std::size_t>(rank)];
  if (!child.reaped) kill(child.pid, number);
}

void RankGroup::kill_all() {
  for (const Child& child : children_) {
    if (!child.reaped) kill(child.pid, SIGKILL);
  }
}

std::string RankGroup::steps_text() const {
  std::string text;
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    const std::uint64_t since = board_->since_ns[rank].load();
    text += "\n  rank " + std::to_string(rank) + (children_[rank].reaped ? " (ended)" : "") + ": " +
            board_->step[rank] + ", for " + std::to_string(since == 0 ? 0 : (now_ns() - since) / 1'000'000) + " ms";
  }
  return text;
}

// Reaps what has ended and kills what is late; each lateness is told once.
void RankGroup::look() {
  for (Child& child : children_) {
    int status = 0;
    if (child.reaped || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.reaped = true;
    child.result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    child.result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    child.result.text = drain(child.pipe);
    if (child.result.code > 0 || (child.result.signal != 0 && child.result.signal != SIGKILL)) {  // waited for in vain
      const std::uint64_t soon = in_seconds(kAfterAFailureSeconds);
      if (soon < limit_ns_) limit_ns_ = soon;
    }
  }
  const std::uint64_t now = now_ns();
  if (killed_ns_ != 0) {
    if (now - killed_ns_ < static_cast<std::uint64_t>(kAfterAKillSeconds * 1e9)) return;
    for (Child& child : children_) {
      if (child.reaped) continue;
      child.reaped = true;  // left alone
      child.result.text = "does not end even when it is killed (stuck in the driver)";
    }
    return;
  }
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    if (children_[rank].reaped) continue;
    const std::uint64_t deadline = board_->deadline_ns[rank].load();
    const bool step_late = deadline != 0 && now > deadline;
    if (!step_late && now < limit_ns_) continue;
    ADD_FAILURE() << "rank " << rank << " hangs in step '" << board_->step[rank]
                  << (step_late ? "'" : "' (limit of the whole group, or after another's failure)")
                  << "; all ranks are killed:" << steps_text();
    killed_ns_ = now;
    kill_all();
    return;
  }
}

bool RankGroup::await(std::size_t i, std::uint64_t value, double seconds) {
  const std::uint64_t limit = in_seconds(seconds);
  while (board_->words[i].load() < value) {
    look();
    for (const Child& child : children_) {
      if (child.reaped) return false;
    }
    if (now_ns() > limit) return false;
    sleep_s(0.0002);
  }
  return true;
}

RankResult RankGroup::wait(int rank) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  while (!child.reaped) {
    look();
    sleep_s(0.001);
  }
  return child.result;
}

bool finish_group(RankGroup& group, int world) {
  bool good = true;
  for (int rank = 0; rank < world; ++rank) {
    const RankResult result = group.wait(rank);
    if (result.code == 0 && result.signal == 0) continue;
    good = false;
    std::string text = result.text;
    if (text.empty()) text = "no text; its last step: " + std::string(group.board().step[rank]);
    ADD_FAILURE() << "rank " << rank << (result.signal != 0 ? " was ended by signal " : " ended with code ")
                  << (result.signal != 0 ? result.signal : result.code) << ": " << text;
  }
  return good;
}

bool run_group(const char* program, const GroupOptions& options) {
  RankGroup group(program, options);
  return finish_group(group, options.world);
}

}  // namespace ringbell::test
