// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// GPU ranks as programs: a test starts its own executable once per rank (never a fork with CUDA inside), each runs one
// named body. A board in shared memory says what every rank is doing and until when it may, so that a hang is told by
// its step and killed. Memory of the GPU is in gpu_memory.hpp; this file is free of CUDA.
#ifndef RINGBELL_TESTS_SUPPORT_GPU_RANKS_HPP_
#define RINGBELL_TESTS_SUPPORT_GPU_RANKS_HPP_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "runtime/ringbell.hpp"

namespace ringbell::test {

/// RINGBELL_TIME_SCALE, 1 without it: what limits are multiplied by.
double time_scale();
/// A whole number from the environment, for sizes of long tests.
std::uint64_t number_from_env(const char* name, std::uint64_t fallback);

inline constexpr int kMostRanks = 8;
inline constexpr std::size_t kBoardWords = 16384;
inline constexpr std::size_t kBoardBlobBytes = 512;

/// What the ranks and the test share. memory: an anonymous file, mapped by all. zero: nothing said yet.
struct Board {
  std::atomic<std::uint64_t> words[kBoardWords];       // by agreement of one test
  std::atomic<std::uint64_t> met[kMostRanks];          // barriers that rank has reached
  std::atomic<std::uint64_t> deadline_ns[kMostRanks];  // monotonic; of the step; 0: none
  std::atomic<std::uint64_t> since_ns[kMostRanks];
  std::atomic<std::uint64_t> failed;                // rank + 1 of one that has failed: nobody should wait for it
  char step[kMostRanks][128];                       // written by that rank before deadline_ns
  unsigned char blob[kMostRanks][kBoardBlobBytes];  // IPC handles, ids; published by a barrier or a word
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// One rank, seen from inside its process. Failures are exceptions.
class RankSelf {
 public:
  RankSelf(int rank, int world, int devices, const UniqueId& id, std::string argument, Board& shared)
      : board(shared), rank_(rank), world_(world), devices_(devices), id_(id), argument_(std::move(argument)) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const UniqueId& id() const { return id_; }
  /// What the test passed on.
  [[nodiscard]] const std::string& argument() const { return argument_; }
  /// The GPU of this rank: one each where there are enough.
  [[nodiscard]] int device() const { return rank_ % devices_; }
  [[nodiscard]] bool shares_device() const { return world_ > devices_; }
  /// For CUDA, on device(), with time-outs that a test can wait for.
  [[nodiscard]] Config config() const;

  /// Says what comes next; past the limit (times time_scale) the test kills all ranks and names this step.
  void step(const std::string& text, double limit_s = 30);
  /// Returns when every rank has come here; throws when one has failed, and after 60 s.
  void meet();

  Board& board;  // NOLINT: a plain shared thing

 private:
  const int rank_;
  const int world_;
  const int devices_;
  const UniqueId id_;
  const std::string argument_;
};

/// Throws with the text when `condition` is false.
inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}
/// Waits; throws with status and last_error() for anything but kOk.
void require_ok(Communicator& comm, const Ticket& ticket, const std::string& what = "call");
void require_ok(Communicator& comm, Status status, const std::string& what);
bool contains(std::string_view text, std::string_view part);

/// Names a body that ranks can run. Objects of this type are global.
class RankProgram {
 public:
  using Body = void (*)(RankSelf&);
  RankProgram(const char* name, Body body);
};

struct GroupOptions {
  int world = 2;
  int devices = 1;                       ///< visible GPUs, from the test's process
  std::vector<std::string> environment;  ///< "NAME=VALUE", added for all ranks
  std::string argument;
  double limit_s = 60;  ///< for the whole group, times time_scale
};

struct RankResult {
  int code = -1;     ///< exit code; -1: ended by a signal
  int signal = 0;    ///< 0: exited
  std::string text;  ///< the exception's; empty: success
};

/// The processes of one group. Destroying it kills what still runs.
class RankGroup {
 public:
  RankGroup(const char* program, const GroupOptions& options);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  [[nodiscard]] Board& board() { return *board_; }
  void signal(int rank, int number);
  /// Polls until board word `i` is at least `value`; false after `seconds` or when a rank has ended.
  bool await(std::size_t i, std::uint64_t value, double seconds);
  /// Waits until that rank has ended. A step or the group past its limit: all are killed and the test fails.
  RankResult wait(int rank);

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;
    bool reaped = false;
    RankResult result;
  };
  void look();
  void kill_all();
  [[nodiscard]] std::string steps_text() const;

  Board* board_ = nullptr;
  int board_fd_ = -1;
  std::vector<Child> children_;
  std::uint64_t limit_ns_ = 0;
  std::uint64_t killed_ns_ = 0;
};

/// Runs a group to its end and adds a failure for every rank that did not succeed. @return true if all did
bool run_group(const char* program, const GroupOptions& options);
/// The same, for a test that reads the board afterwards.
bool finish_group(RankGroup& group, int world);

/// @return true if this process was started as a rank; `code` is then the exit code.
bool ran_as_rank(int argc, char** argv, int* code);

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_GPU_RANKS_HPP_
