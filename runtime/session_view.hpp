// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Running sessions of this user, looked at from outside: what each rank has completed, what it is in, whom it waits
// for, and how its process is. Reads /proc and the segment's bytes; touches no GPU, takes no lock and writes nothing.
// For the program in tools/; not installed, no part of the public API.
#ifndef RINGBELL_RUNTIME_SESSION_VIEW_HPP_
#define RINGBELL_RUNTIME_SESSION_VIEW_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/layout/control.hpp"
#include "runtime/failure_facts.hpp"

namespace ringbell::session {

enum class ProcessState : std::uint8_t {
  kUnknown,  ///< of another PID namespace, and alive as far as its lock tells; or the view is of a dump
  kRunning,
  kStopped,  ///< by a signal
  kTraced,   ///< a thread of it is stopped by a debugger
  kGone,
};
/// "running", "stopped", ..
const char* process_state_name(ProcessState state) noexcept;

/// What a wait has been about for more than a millisecond.
struct Awaited {
  std::uint64_t seq = 0;
  std::uint32_t step = 0;
  std::string what;  ///< "header", "data line", ..
  int peer = -1;
  std::uint64_t waited_ns = 0;  ///< 0: not known
};

/// A call, as far as ranks must agree on it.
struct Call {
  std::uint64_t seq = 0;
  bool after_stream = false;  ///< queued, and its stream has not come to it yet
  device::Command command{};  ///< `in` and `out` are the rank's own
};

struct RankView {
  int rank = 0;
  std::uint32_t pid = 0;  ///< in its own PID namespace; 0: not known
  ProcessState process = ProcessState::kUnknown;
  std::uint32_t tracer = 0;               ///< pid of its tracer, stopped or not; 0: none
  bool joined = false;                    ///< its set-up is complete
  bool left = false;                      ///< it left the group in order, or its set-up failed
  std::uint64_t completed = 0;            ///< calls of the queue that ended well: the number of the next one
  std::uint64_t queued = 0;               ///< calls in the queue that have not completed
  std::optional<Call> current;            ///< the first of those
  std::optional<Awaited> awaited;         ///< by the worker
  std::optional<Awaited> stream_awaited;  ///< by a launched call; `seq` counts launched calls
  device::Residency worker = device::Residency::kParked;
  device::ParkReason park_reason = device::ParkReason::kNone;
  std::uint64_t launches = 0;
  bool kept_parked = false;  ///< by the rank itself: ParkedScope, park_and_stay
  bool held = false;
  std::uint64_t host_waits = 0;        ///< threads of the application inside wait
  std::uint64_t host_wait_seq = 0;     ///< the call that the newest of them waits for
  std::uint64_t host_waited_ns = 0;    ///< and for how long
  std::uint64_t heartbeat_age_ns = 0;  ///< of the library's service thread
  FailureFacts failure;                ///< status kOk: not broken
  std::optional<Call> failed_call;     ///< the rank's call of the number at which the session broke
};

struct SessionView {
  std::string name;     ///< the segment's: "/ringbell-0-0123456789abcdef"
  std::string version;  ///< of the library that rank 0 runs; empty before it has said so
  bool cuda = false;
  std::uint32_t queue_depth = 0;  ///< 0: no rank has got so far
  std::uint64_t taken_ns = 0;     ///< CLOCK_MONOTONIC
  std::vector<RankView> ranks;
  std::string unreadable;  ///< why `ranks` is empty: another version's session, with the remedy; else empty
};

/// Which sessions to look at: all of this user, those of one process, or one by its name (RINGBELL_SESSION's value, or
/// as in `name`). A process that is gone still names the session in which it was a rank.
struct Choice {
  std::optional<std::uint32_t> pid;
  std::optional<std::string> name;
};

/// Looks twice, `apart_s` from each other; what moved in between waits for nobody. @return in order of names
/// @throws Error kInvalidArgument: no such process, another user's, no rank of a session, or no such session, with the
///   value and a remedy; kSystem: no /proc; kUnsupported: a chosen session is of another version's layout (where all
///   are looked at, its view says so)
std::vector<SessionView> view_sessions(const Choice& choice, double apart_s);

/// One look at a session. @param fd its segment, open for reading @throws Error kUnsupported as above
SessionView read_session(int fd, const std::string& name);

/// The second look as `now` tells it, without the waits that were over before it.
SessionView combine(const SessionView& before, SessionView now);

}  // namespace ringbell::session

#endif  // RINGBELL_RUNTIME_SESSION_VIEW_HPP_
