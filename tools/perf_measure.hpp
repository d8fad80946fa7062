// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Times and verifies the calls of one row of perf, together with the other ranks of the group, by the same rule for
// every library. What is measured is peer.hpp, what a row looks like in a table or a file perf_table.hpp and
// perf_json.hpp.
#ifndef RINGBELL_TOOLS_PERF_MEASURE_HPP_
#define RINGBELL_TOOLS_PERF_MEASURE_HPP_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/meeting.hpp"
#include "tools/options.hpp"
#include "tools/peer.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_cache.hpp"
#include "tools/perf_rows.hpp"
#include "tools/perf_samples.hpp"

namespace ringbell::tools {

/// All ranks make the same calls in the same order. Errors of calls are the ExitError that the peer makes of them.
class Measurement {
 public:
  /// @param beat  called before every timed call, outside of what is timed; may be empty
  /// @param work  for ways that need a stream; else null
  Measurement(Peer& peer, Buffers& buffers, Meeting& meeting, const PerfOptions& options, WorkStream* work = nullptr,
              std::function<void()> beat = {})
      : peer_(peer), buffers_(buffers), meeting_(meeting), options_(options), work_(work), beat_(std::move(beat)) {
    if (work_ != nullptr) peer_.use(*work_);
  }

  /// An empty command through queue and worker: what every call costs at least.
  Row nop();
  /// One round: warm-up calls and counted ones, out of place and then in place.
  Row all_reduce(const RowPlan& plan);

 private:
  /// The buffers, values and counters of the calls of one placement.
  struct Series {
    const Row& row;
    bool in_place;
    SetPlan sets;
    std::uint64_t calls_made = 0;
    std::uint64_t wrong = 0;
    std::vector<std::uint64_t> times_ns;
  };

  Measured measure(const Row& row, bool in_place);
  Measured measure_samples(const Row& row);
  void measure_batch(Series& series, int first, int count);
  std::uint64_t hash(Series& series);
  /// Selects a set and says what a call on it is.
  PeerCall call_on(const Series& series, int set);
  void prepare(const Series& series, const ValueRule& rule, const PeerCall& call);
  template <class Body>
  std::uint64_t timed(Body body);
  std::uint64_t timed_call(Series& series, const PeerCall& call);
  void wake_worker();
  void wait_for_slot();
  void set_times(Measured& result, std::vector<std::uint64_t>& nanoseconds);

  Peer& peer_;
  Buffers& buffers_;
  Meeting& meeting_;
  const PerfOptions& options_;
  WorkStream* work_;
  std::function<void()> beat_;
  std::chrono::steady_clock::time_point next_slot_;  ///< with --rate
  std::uint64_t calls_ = 0;                          ///< makes the values of every call new
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_MEASURE_HPP_
