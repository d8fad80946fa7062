// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How the groups of `perf --against` take turns: one measures, the others sleep on a futex. A page of anonymous shared
// memory, like meeting.hpp's; that one is for the ranks of one group, this one for the groups. Group 0 is ringbell; its
// rank 0 is the conductor, who gives the turns. The launcher tells which groups are gone.
#ifndef RINGBELL_TOOLS_TURNS_HPP_
#define RINGBELL_TOOLS_TURNS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/perf_rows.hpp"

namespace ringbell::tools {

struct TurnsPage;
struct TurnsGroup;
struct NotedPath;

/// Sizes, computed alike by every process of a run.
struct TurnsShape {
  int groups = 1;
  std::uint64_t rows = 0;
  std::uint64_t samples = 0;  ///< of one placement and round

  static TurnsShape of(const PerfOptions& options) {
    return {static_cast<int>(options.against.size()) + 1, plan_rows(options).size(),
            static_cast<std::uint64_t>(options.iterations)};
  }
};

/// One thread. A group has failed once fail() or gone() was called for it before its end; its first text stays. Nothing
/// here waits for ever for a group that died: the launcher's gone() ends every wait for it.
class Turns {
 public:
  /// @return a file descriptor, close-on-exec. @throws ExitError(kExitEnvironment)
  static int create_place(const TurnsShape& shape);
  /// @param fd only read during the call
  Turns(int fd, const TurnsShape& shape);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // ---- a rank of a group
  /// By one rank when all are set up. @param about the library's version
  void say_ready(int group, std::string_view about);
  /// Sleeps until the group's turn. @return the row to measure; nullopt: no more, leave
  std::optional<std::uint32_t> await(int group);
  /// Before each call: a group that stands still is ended.
  void beat(int group) noexcept;
  /// By one rank of the group that has the turn, before finish(). Most shape.samples times, texts cut.
  void put(const Row& row);
  /// By each of `ranks` ranks: the turn goes back when the last has said so.
  void finish(int group, int ranks);

  // ---- a probe: processes of the group's kind that only note what their library says of each row
  void note_path(int group, std::uint64_t row, const PeerPath& path);
  void note_nvls(int group, bool possible) noexcept;

  // ---- any process
  void fail(int group, std::string_view why) noexcept;
  [[nodiscard]] bool failed(int group) const noexcept;
  [[nodiscard]] std::string why(int group) const;

  // ---- the conductor
  /// @return false when it failed, also by not coming in `limit_s` (0: for ever). Then it is gone, or was given up.
  bool wait_ready(int group, double limit_s);
  [[nodiscard]] std::string about(int group) const;
  void give(int group, std::uint32_t row);
  /// Sleeps until the group has finished. @param limit_s longest time without a beat; 0: for ever
  bool wait_finished(int group, double limit_s);
  /// What the group measured, for a row of that plan.
  [[nodiscard]] Row take(const RowPlan& plan) const;
  /// Sleeps until the group's probe, if it has one, is over; after `limit_s` it is not wanted any more.
  void wait_probe(int group, double limit_s);
  [[nodiscard]] std::optional<PeerPath> path_noted(int group, std::uint64_t row) const;
  [[nodiscard]] std::optional<bool> nvls_noted(int group) const;
  /// No more turns for anyone.
  void close();

  // ---- the launcher
  /// No process of the group is left. @param why of a group that did not end as it should, else empty
  void gone(int group, std::string_view why) noexcept;
  /// Before any process is started.
  void probe_begins(int group) noexcept;
  void probe_ended(int group) noexcept;
  [[nodiscard]] bool probe_unwanted(int group) const noexcept;

 private:
  [[nodiscard]] TurnsGroup& group(int number) const noexcept;
  [[nodiscard]] double* samples(int place) const noexcept;
  [[nodiscard]] NotedPath& noted(int group, std::uint64_t row) const;
  void wake_conductor() noexcept;
  bool end_failed(int number);

  TurnsPage* page_;
  TurnsShape shape_;
  std::uint32_t seen_ = 0;  ///< turns given to this process's group that it has taken
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_TURNS_HPP_
