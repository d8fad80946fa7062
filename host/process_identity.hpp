// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Who a process is, beyond its pid: start time, PID namespace, boot, /dev/shm. And what /proc says of another one.
// A pid means something only where the namespaces are equal; who is alive is decided in host/liveness.hpp.
#ifndef RINGBELL_HOST_PROCESS_IDENTITY_HPP_
#define RINGBELL_HOST_PROCESS_IDENTITY_HPP_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringbell::host {

struct ProcessIdentity {
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;            ///< clock ticks since boot; 0 where /proc is not readable
  std::uint64_t pid_namespace = 0;         ///< inode of /proc/self/ns/pid; 0 when unknown
  std::array<std::uint8_t, 16> boot_id{};  ///< zero when unknown
  std::uint64_t shm_device = 0;            ///< st_dev of /dev/shm; 0 when unknown
  std::uint64_t host_hash = 0;             ///< of the host name
  std::uint64_t process_token = 0;         ///< random, never 0, the same for all threads, new in a fork's child
};

/// Of the calling process. Reads /proc on first use and after a fork; never throws for a missing /proc.
ProcessIdentity self_identity();

/// What /proc/<pid>/stat says.
struct ProcessStat {
  char state = '?';  ///< R S D Z T t X ..
  std::uint64_t start_time = 0;
};
/// @param text the file's content; the command in parentheses may hold anything, also ") R".
std::optional<ProcessStat> parse_process_stat(std::string_view text);
std::optional<ProcessStat> read_process_stat(std::uint32_t pid);

enum class ProcessRun : std::uint8_t {
  kUnknown,  ///< other PID namespace, no /proc, or start time not known
  kRunning,
  kSuspended,  ///< stopped by a signal (T) or by a tracer (t)
  kGone,       ///< no such process, a zombie, or the pid belongs to a younger process
};
/// @param pid_namespace of the process asked about; another one than ours gives kUnknown.
ProcessRun process_run_state(std::uint32_t pid, std::uint64_t start_time, std::uint64_t pid_namespace);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_PROCESS_IDENTITY_HPP_
