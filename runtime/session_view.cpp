// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session_view.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <unistd.h>

#include "host/clock.hpp"
#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/process_identity.hpp"
#include "host/process_status.hpp"
#include "host/segment_layout.hpp"
#include "runtime/agreement.hpp"
#include "runtime/build_info.hpp"
#include "runtime/control_view.hpp"
#include "runtime/failure_text.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell::session {
namespace {

using host::Phase;

constexpr std::uint64_t kMostDepth = 4096;  // as settings.cpp has it
constexpr std::uint64_t kDayNs = 86'400 * host::kNanosPerSecond;

/// A copy of bytes of the segment, aligned as a page. Copied and not mapped: a page that no rank has reserved reads as
/// zeros and is not made by looking, and a file that is cut short is a short read and no SIGBUS.
class Copy {
 public:
  Copy(int fd, std::size_t offset, std::size_t bytes)
      : bytes_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{host::kPageBytes}))) {
    std::memset(bytes_.get(), 0, bytes);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = ::pread(fd, bytes_.get() + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;  // cut short: the rest is zero
      done += static_cast<std::size_t>(got);
    }
  }
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_.get(); }
  template <class T>
  [[nodiscard]] const T& as() const noexcept {
    return *reinterpret_cast<const T*>(bytes_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{host::kPageBytes}); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

ProcessState process_state(const host::RankCard& card, const host::PeerEvidence& evidence, std::uint32_t* tracer) {
  switch (evidence.run) {
    case host::ProcessRun::kGone: return ProcessState::kGone;
    case host::ProcessRun::kUnknown:
      return judge_peer(evidence) == host::PeerState::kLost ? ProcessState::kGone : ProcessState::kUnknown;
    case host::ProcessRun::kRunning:
    case host::ProcessRun::kSuspended: break;
  }
  if (const auto status = host::read_process_status(card.pid)) *tracer = status->tracer;
  if (*tracer != 0 && host::has_thread_in_trace_stop(card.pid)) return ProcessState::kTraced;
  return evidence.run == host::ProcessRun::kSuspended ? ProcessState::kStopped : ProcessState::kRunning;
}

/// A worker's clock is CLOCK_MONOTONIC on a CPU, and about the time of day on a GPU.
std::uint64_t waited_ns(std::uint64_t since_ns, bool cuda) {
  timespec now{};
  clock_gettime(cuda ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
  const std::uint64_t now_ns =
      static_cast<std::uint64_t>(now.tv_sec) * host::kNanosPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
  return now_ns > since_ns && now_ns - since_ns < kDayNs ? now_ns - since_ns : 0;
}

Awaited awaited_of(const device::WaitRecord& record, bool cuda) {
  return {record.seq, record.step, awaited_name(record.what), record.peer, waited_ns(record.since_ns, cuda)};
}

std::optional<Call> call_at(const ControlView& view, std::uint64_t seq) {
  Call call{seq, false, {}};
  const Queued queued = queued_call(view, seq, &call.command);
  if (queued == Queued::kNothing) return std::nullopt;
  call.after_stream = queued == Queued::kAfterStream;
  return call;
}

/// What the rank's control bytes say.
void read_control(const ControlView& view, bool cuda, std::uint64_t timeout_ns, RankView& rank) {
  const device::ControlBlock& control = *view.control;
  rank.worker = device::state_residency(control.state.state);
  rank.park_reason = device::state_reason(control.state.state);
  rank.launches = device::state_generation(control.state.state);
  rank.kept_parked = (control.control.request & device::kRequestPark) != 0;
  rank.held = (control.control.request & device::kRequestHold) != 0;
  rank.completed = completed_calls(view);
  rank.current = call_at(view, rank.completed);
  while (rank.queued < view.depth && call_at(view, rank.completed + rank.queued)) ++rank.queued;
  // The record stays when its wait is over; one about the current call may be of a wait that was before this one.
  const device::WaitRecord& slow = control.way[device::kHostWay].slow_wait;
  if (slow.valid == rank.completed + 1 && rank.current) rank.awaited = awaited_of(slow, cuda);
  const device::WaitRecord& slow_stream = control.way[device::kStreamWay].slow_wait;
  if (slow_stream.valid != 0) rank.stream_awaited = awaited_of(slow_stream, cuda);
  rank.host_waits = control.host_wait.threads;
  if (rank.host_waits != 0) {
    rank.host_wait_seq = control.host_wait.seq;
    rank.host_waited_ns = waited_ns(control.host_wait.since_ns, false);
  }
  rank.failure = failure_facts(control, static_cast<unsigned>(rank.rank), rank.completed, timeout_ns);
  if (rank.failure.status == Status::kOk) return;
  rank.awaited.reset();
  rank.stream_awaited.reset();
}

/// Calls of the number at which the first rank found that they differ.
void read_failed_calls(const std::vector<std::optional<ControlView>>& views, std::vector<RankView>& ranks) {
  for (const RankView& broken : ranks) {
    if (broken.failure.status != Status::kMismatch || broken.failure.launched) continue;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (views[i]) ranks[i].failed_call = call_at(*views[i], broken.failure.seq);
    }
    return;
  }
}

}  // namespace

SessionView read_session(int fd, const std::string& name) {
  SessionView session;
  session.name = name;
  session.taken_ns = host::monotonic_ns();
  const Copy header_copy(fd, 0, sizeof(host::SegmentHeader));
  const auto& header = header_copy.as<host::SegmentHeader>();
  if (header.magic == 0) return session;  // rank 0 is making it
  if (header.magic != host::kSegmentMagic || header.layout_version != host::kSegmentLayoutVersion ||
      header.world > static_cast<std::uint32_t>(host::kMaxRanks)) {
    host::throw_error(Status::kUnsupported,
                      fmt::format("session {} has layout version {}, this program reads {}", name,
                                  header.layout_version, host::kSegmentLayoutVersion),
                      "use the `ringbell` of the library that the job runs with");
  }
  const auto world = static_cast<int>(header.world);
  std::vector<Copy> controls;  // kept: the views lead there
  std::vector<std::optional<ControlView>> views(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) {
    RankView rank;
    rank.rank = r;
    rank.pid = static_cast<std::uint32_t>(header.claim[r].owner_pid);
    const auto phase = static_cast<Phase>(header.phase[r].phase);
    rank.joined = phase == Phase::kOpened || (phase == Phase::kClosed);
    rank.left = phase == Phase::kClosed || phase == Phase::kFailed;
    if (phase == Phase::kNone) {
      session.ranks.push_back(std::move(rank));
      continue;
    }
    const Copy card_copy(fd, host::card_offset(r), sizeof(host::RankCard));
    const auto& card = card_copy.as<host::RankCard>();
    host::PeerEvidence evidence;
    evidence.lock_free = host::rank_byte_is_free(fd, r);
    const std::uint64_t beat = header.heartbeat[r].beat_ns;
    evidence.heartbeat_age_ns = session.taken_ns > beat ? session.taken_ns - beat : 0;
    evidence.run = host::process_run_state(card.pid, card.start_time, card.pid_namespace);
    rank.heartbeat_age_ns = evidence.heartbeat_age_ns;
    rank.process = process_state(card, evidence, &rank.tracer);
    if (rank.joined) {
      Agreement agreement;
      std::memcpy(&agreement, card.agreement, sizeof agreement);
      session.cuda = card.device_kind == host::DeviceKind::kCuda;
      session.version = std::string(agreement.version, strnlen(agreement.version, sizeof agreement.version));
      session.queue_depth = static_cast<std::uint32_t>(agreement.queue_depth);
      if (agreement.wire_version != kWireVersion || !std::has_single_bit(agreement.queue_depth) ||
          agreement.queue_depth > kMostDepth || device::control_bytes(agreement.queue_depth) != header.control_bytes) {
        host::throw_error(Status::kUnsupported,
                          fmt::format("session {} is of ringbell {}, this program is {}", name, session.version,
                                      build_info().version),
                          "use the `ringbell` of the library that the job runs with");
      }
      const host::SegmentGeometry geometry{header.control_bytes, header.window_bytes};
      controls.emplace_back(fd, host::control_offset(r, world, geometry), header.control_bytes);
      const ControlView view = view_control(controls.back().data(), session.queue_depth);
      views[static_cast<std::size_t>(r)] = view;
      read_control(view, session.cuda, agreement.timeout_ms * 1'000'000, rank);
    }
    session.ranks.push_back(std::move(rank));
  }
  read_failed_calls(views, session.ranks);
  return session;
}

const char* process_state_name(ProcessState state) noexcept {
  switch (state) {
    case ProcessState::kUnknown: return "alive, in another PID namespace";
    case ProcessState::kRunning: return "running";
    case ProcessState::kStopped: return "stopped";
    case ProcessState::kTraced: return "traced";
    case ProcessState::kGone: return "gone";
  }
  return "unknown";
}

SessionView combine(const SessionView& before, SessionView now) {
  if (before.ranks.size() != now.ranks.size()) return now;
  for (std::size_t i = 0; i < now.ranks.size(); ++i) {
    const RankView& was = before.ranks[i];
    RankView& is = now.ranks[i];
    const auto over = [](const std::optional<Awaited>& first, const std::optional<Awaited>& second) {
      return !first || !second || first->seq != second->seq || first->step != second->step ||
             first->peer != second->peer;
    };
    if (was.completed != is.completed || over(was.awaited, is.awaited)) is.awaited.reset();
    if (over(was.stream_awaited, is.stream_awaited)) is.stream_awaited.reset();
  }
  return now;
}

}  // namespace ringbell::session
