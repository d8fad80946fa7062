// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session_view.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/clock.hpp"
#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/open_segments.hpp"
#include "host/process_identity.hpp"
#include "host/segment_layout.hpp"
#include "host/unique_id.hpp"
#include "runtime/agreement.hpp"
#include "runtime/build_info.hpp"
#include "runtime/control_view.hpp"
#include "runtime/failure_text.hpp"
#include "runtime/ringbell.hpp"
#include "runtime/session.hpp"

namespace ringbell::session {
namespace {

using host::Phase;

constexpr std::uint64_t kDayNs = 86'400 * host::kNanosPerSecond;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

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

/// A line "Name:\tvalue ..." of /proc/PID/status, after the name. Empty when there is none.
std::string status_line(std::uint32_t pid, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return {};
}

std::uint32_t number_at(const std::string& text, std::size_t word) {
  std::size_t begin = 0;
  for (std::size_t at = 0;; ++at) {
    begin = text.find_first_not_of(" \t", begin);
    if (begin == std::string::npos) return 0;
    const std::size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    if (at == word) {
      std::uint32_t number = 0;
      std::from_chars(text.data() + begin, text.data() + end, number);
      return number;
    }
    begin = end;
  }
}

/// A debugger may stop some threads of a process and not the one that /proc/PID/stat is about.
bool has_traced_thread(std::uint32_t pid) {
  const std::string folder = fmt::format("/proc/{}/task", pid);
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return false;
  bool traced = false;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(fmt::format("{}/{}/stat", folder, entry->d_name));
    std::string text;
    std::getline(file, text);
    const auto stat = host::parse_process_stat(text);
    traced = traced || (stat && stat->state == 't');
  }
  closedir(dir);
  return traced;
}

ProcessState process_state(const host::RankCard& card, const host::PeerEvidence& evidence, std::uint32_t* tracer) {
  switch (evidence.run) {
    case host::ProcessRun::kGone: return ProcessState::kGone;
    case host::ProcessRun::kUnknown:
      return judge_peer(evidence) == host::PeerState::kLost ? ProcessState::kGone : ProcessState::kUnknown;
    case host::ProcessRun::kRunning:
    case host::ProcessRun::kSuspended: break;
  }
  *tracer = number_at(status_line(card.pid, "TracerPid"), 0);
  if (*tracer != 0 && has_traced_thread(card.pid)) return ProcessState::kTraced;
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
  if (queued == Queued::kNo) return std::nullopt;
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
      if (agreement.wire_version != kWireVersion || agreement.queue_depth == 0 ||
          device::control_bytes(agreement.queue_depth) != header.control_bytes) {
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

// ---- which sessions -------------------------------------------------------------------------------------------------

std::string remedy_list() { return "`ringbell top --once` lists the sessions of this user"; }

/// @throws Error: not a process of this user
void check_owner(std::uint32_t pid) {
  const std::string uids = status_line(pid, "Uid");
  if (uids.empty()) return;
  const std::uint32_t uid = number_at(uids, 1);
  if (uid == geteuid()) return;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("process {} belongs to uid {}, this is uid {}", pid, uid, geteuid()),
                    fmt::format("only processes of the same user are looked at; run it as that user: sudo -u '#{}' "
                                "ringbell why {}",
                                uid, pid));
}

bool process_exists(std::uint32_t pid) { return !status_line(pid, "State").empty(); }

/// One descriptor of each segment, opened. Several processes have it; one may end meanwhile.
struct Found {
  std::string name;
  std::unique_ptr<Descriptor> file;
};

class Finder {
 public:
  explicit Finder(std::string prefix) : prefix_(std::move(prefix)) {}

  void look_into(std::uint32_t pid) {
    const auto segments = host::open_segments_of(pid, prefix_);
    if (!segments) return;
    for (const host::OpenSegment& segment : *segments) {
      if (seen_.contains({segment.device, segment.inode})) continue;
      auto file = std::make_unique<Descriptor>(
          ::open(host::descriptor_path(segment).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      struct stat info {};
      if (file->get() < 0 || fstat(file->get(), &info) != 0) continue;
      // The number may have become another file's meanwhile.
      if (info.st_dev != segment.device || info.st_ino != segment.inode || info.st_uid != geteuid()) continue;
      seen_.insert({segment.device, segment.inode});
      found_.push_back({segment.name, std::move(file)});
    }
  }
  void look_everywhere() {
    for (const std::uint32_t pid : host::process_ids()) look_into(pid);
  }
  std::vector<Found> take() {
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  std::string prefix_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<Found> found_;
};

bool has_rank_of(const SessionView& session, std::uint32_t pid) {
  return std::any_of(session.ranks.begin(), session.ranks.end(), [&](const RankView& rank) { return rank.pid == pid; });
}

std::vector<Found> find_of_process(std::uint32_t pid, const std::string& prefix) {
  Finder finder(prefix);
  if (process_exists(pid)) {
    check_owner(pid);
    finder.look_into(pid);
    auto found = finder.take();
    if (!found.empty()) return found;
    host::throw_error(
        Status::kInvalidArgument, fmt::format("process {} is no rank of a running session", pid),
        "give the pid of a process that has made its Communicator, not of its launcher; " + remedy_list());
  }
  // Its peers may still have the session that it was in.
  finder.look_everywhere();
  auto found = finder.take();
  std::erase_if(found, [&](const Found& one) {
    try {
      return !has_rank_of(read_session(one.file->get(), one.name), pid);
    } catch (const Error&) {
      return true;
    }
  });
  if (!found.empty()) return found;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("there is no process {}, and it was no rank of a session that still runs", pid),
                    remedy_list());
}

std::vector<Found> find(const Choice& choice) {
  const std::string all = host::segment_name_prefix(geteuid());
  if (choice.pid) return find_of_process(*choice.pid, all);
  if (!choice.name) {
    Finder finder(all);
    finder.look_everywhere();
    return finder.take();
  }
  Finder finder(segment_name(*choice.name));
  finder.look_everywhere();
  auto found = finder.take();
  if (!found.empty()) return found;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("no process of uid {} has session {} open", geteuid(), *choice.name), remedy_list());
}

}  // namespace

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

std::vector<SessionView> view_sessions(const Choice& choice, double apart_s) {
  if (::access("/proc/self/stat", R_OK) != 0) {
    host::throw_errno("access", "/proc/self/stat", "running sessions are found by /proc: mount it");
  }
  const auto found = find(choice);
  std::vector<SessionView> before;
  for (const Found& one : found) before.push_back(read_session(one.file->get(), one.name));
  host::sleep_ns(static_cast<long>(apart_s * static_cast<double>(host::kNanosPerSecond)));
  std::vector<SessionView> views;
  for (std::size_t i = 0; i < found.size(); ++i) {
    views.push_back(combine(before[i], read_session(found[i].file->get(), found[i].name)));
  }
  return views;
}

}  // namespace ringbell::session
