// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of perf meet: a barrier and small exchanges in a page of anonymous shared memory, beside the library
// that is measured and without touching it. Not in /dev/shm: nothing can be left behind.
#ifndef RINGBELL_TOOLS_MEETING_HPP_
#define RINGBELL_TOOLS_MEETING_HPP_

#include <cstdint>
#include <vector>

namespace ringbell::tools {

struct MeetingPage;

/// One rank's seat. One thread each. Every call but the constructors and fail() is made by all ranks in the same order
/// and waits for them: it throws ExitError with the code of a rank that failed, or kExitLost when the time limit
/// passes.
class Meeting {
 public:
  /// An empty place for others to join: a file descriptor, close-on-exec. @throws ExitError(kExitEnvironment)
  static int create_place();

  /// @param fd  from create_place, here or in the process that made it; only read during the call
  /// @param limit_s longest wait for the others; 0: for ever
  Meeting(int fd, int rank, int world, double limit_s);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world() const noexcept { return world_; }

  /// Returns on all ranks at nearly the same time: spins, then yields, and only sleeps in long waits.
  void barrier();
  [[nodiscard]] std::uint64_t sum(std::uint64_t mine);
  [[nodiscard]] bool all_equal(std::uint64_t mine);
  /// Element by element; same length on all ranks.
  void maximum(std::vector<std::uint64_t>& values);

  /// Tells the others not to wait for this rank. The first code stays.
  void fail(int exit_code) noexcept;

 private:
  std::vector<std::uint64_t> gather(std::uint64_t mine);

  MeetingPage* page_;
  int rank_;
  int world_;
  double limit_s_;
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_MEETING_HPP_
