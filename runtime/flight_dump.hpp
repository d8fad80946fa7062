// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a rank leaves in RINGBELL_DUMP_DIR when its communicator breaks: one JSON file, for `ringbell why FILE...`. The
// file's fields stand in runtime/README.md.
#ifndef RINGBELL_RUNTIME_FLIGHT_DUMP_HPP_
#define RINGBELL_RUNTIME_FLIGHT_DUMP_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/failure_facts.hpp"
#include "runtime/flight_recorder.hpp"

namespace ringbell {

inline constexpr int kDumpSchema = 1;
inline constexpr const char* kDumpKind = "ringbell-flight";  ///< value of "kind"; how a dump is told from other JSON

struct FlightDump {
  std::string version;  ///< of the library
  std::string session;  ///< the segment's name
  int rank = 0;
  int world = 0;
  std::uint32_t pid = 0;
  std::uint64_t dumped_ns = 0;     ///< CLOCK_MONOTONIC, as all times here
  std::uint64_t submitted = 0;     ///< calls queued so far
  std::uint64_t completed = 0;     ///< of those, calls that the worker completed
  std::uint64_t stream_calls = 0;  ///< put on streams; they are not among the records
  FailureFacts failure;
  std::vector<FlightRecord> records;
};

/// The file's content.
std::string dump_text(const FlightDump& dump);
/// "ringbell-0123456789abcdef-rank3-4711.json".
std::string dump_file_name(const FlightDump& dump);

/// Warns, once per process, when `folder` cannot take a dump: better at set-up than when it is needed. Never throws.
void check_dump_folder(const std::string& folder) noexcept;
/// Writes the dump, whole or not at all, for this user alone (mode 0600); warns as above when that fails.
void write_dump(const std::string& folder, const FlightDump& dump) noexcept;

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_FLIGHT_DUMP_HPP_
