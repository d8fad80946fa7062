// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What /proc says of a process to somebody who looks at it once: whose it is, who traces it, what holds it up. Whether
// it is still the process that it was is host/process_identity.hpp.
#ifndef RINGBELL_HOST_PROCESS_STATUS_HPP_
#define RINGBELL_HOST_PROCESS_STATUS_HPP_

#include <cstdint>
#include <optional>

namespace ringbell::host {

struct ProcessStatus {
  std::uint32_t uid = 0;     ///< effective
  std::uint32_t tracer = 0;  ///< pid; 0: nobody traces it
};
/// @return nullopt when there is no such process, as far as this one may know
std::optional<ProcessStatus> read_process_status(std::uint32_t pid);

/// Does a tracer hold one of its threads? It may stop some, and not the one that /proc/PID/stat is about.
bool has_thread_in_trace_stop(std::uint32_t pid);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_PROCESS_STATUS_HPP_
