// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Times and verifies the calls of one row of perf, together with the other ranks. What a row looks like in a table or a
// file is perf_table.hpp and perf_json.hpp.
#ifndef RINGBELL_TOOLS_PERF_MEASURE_HPP_
#define RINGBELL_TOOLS_PERF_MEASURE_HPP_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"
#include "tools/meeting.hpp"
#include "tools/options.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/statistics.hpp"

namespace ringbell::tools {

/// The end of perf for a call that failed. Its text is empty when stderr has it already.
ExitError call_error(const Communicator& comm, Status status);

/// The same on every rank.
struct Measured {
  Summary us;                          ///< of the slowest rank's times
  Path path;                           ///< that the calls went
  std::optional<std::uint64_t> wrong;  ///< elements, all ranks and calls; nullopt: not checked
  std::optional<std::uint64_t> hash;   ///< of the output, the same on all ranks
  std::uint64_t sent_bytes = 0;        ///< payload published for one call by all ranks together
  bool sent_as_expected = true;        ///< exactly, over all calls
};

/// One size, type and operation; the floor row has neither.
struct Row {
  bool is_nop = false;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<Measured> out_of_place;
  std::optional<Measured> in_place;

  /// What a ring of `ranks` publishes for one call.
  [[nodiscard]] std::uint64_t expected_bytes(int ranks) const {
    return 2 * static_cast<std::uint64_t>(ranks - 1) * bytes;
  }
};

/// All ranks make the same calls in the same order. Errors of calls are ExitError with last_error() as text.
class Measurement {
 public:
  Measurement(Communicator& comm, Buffers& buffers, Meeting& meeting, const PerfOptions& options)
      : comm_(comm), buffers_(buffers), meeting_(meeting), options_(options) {}

  /// An empty command through queue and worker: what every call costs at least.
  Row nop();
  Row all_reduce(DType dtype, ReduceOp op, std::uint64_t count);

 private:
  Measured measure(const Row& row, bool in_place);
  std::uint64_t hash(const Row& row, const void* in, void* out);
  void prepare(const Row& row, const ValueRule& rule, bool in_place);
  std::uint64_t timed(const std::function<Ticket()>& submit);
  void wake_worker();
  Summary summary_of_slowest(std::vector<std::uint64_t>& nanoseconds);
  [[nodiscard]] std::uint64_t sent_bytes() const;

  Communicator& comm_;
  Buffers& buffers_;
  Meeting& meeting_;
  const PerfOptions& options_;
  std::uint64_t calls_ = 0;  ///< makes the values of every call new
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_MEASURE_HPP_
