// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank.hpp"

#include <fmt/format.h>

#include "host/env.hpp"
#include "host/error.hpp"
#include "host/log.hpp"
#include "runtime/agreement.hpp"
#include "runtime/build_info.hpp"
#include "runtime/control_view.hpp"
#include "runtime/failure_text.hpp"
#include "runtime/flight_dump.hpp"

namespace ringbell {
namespace {

constexpr std::uint64_t kWatchEveryNs = 25'000'000;
// A peer that has gone may have finished its part: its lines are here already, and the call completes by itself.
constexpr std::uint64_t kGraceNs = 200'000'000;
constexpr double kDrainSeconds = 1;  // teardown: for calls still queued
constexpr double kStopSeconds = 5;   // teardown: for the worker to leave
constexpr double kCloseSeconds = 2;  // teardown: for peers to let go of a CUDA window
constexpr unsigned kCpuSpins = 64;   // a CPU worker may need this very core
constexpr unsigned kCudaSpins = 1u << 15;

// Counters of the own window that start with the first epoch, as if as many slots had been used.
std::vector<host::InitialWord> initial_words(const device::WindowLayout& layout, std::uint64_t first_epoch) {
  std::vector<host::InitialWord> words;
  if (first_epoch == 0) return words;
  for (std::uint64_t way = 0; way < device::kWays; ++way) {
    const std::uint64_t begin = way * layout.way_bytes();
    for (unsigned channel = 0; channel < layout.channels; ++channel) {
      for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
        words.push_back({begin + layout.credit_offset(channel, wire), first_epoch});
      }
      words.push_back({begin + layout.tail_offset(channel), first_epoch});
    }
    for (unsigned source = 0; source < layout.ranks; ++source) {
      words.push_back({begin + layout.direct_tail_offset(source), first_epoch});
    }
  }
  return words;
}

device::Persistent initial_state(std::uint64_t first_epoch) {
  device::Persistent state{};
  state.op_index = first_epoch;
  state.direct_epoch = first_epoch;
  for (device::Epochs& epochs : state.epochs) epochs = {first_epoch, first_epoch};
  return state;
}

std::size_t pages(std::uint64_t bytes) {
  return (bytes + device::kPageBytes - 1) / device::kPageBytes * device::kPageBytes;
}

void check_membership(int rank, int world) {
  if (world < 1 || world > device::kMaxRanks) {
    host::throw_error(Status::kInvalidArgument, fmt::format("world is {}", world),
                      "ringbell joins 1 to 8 ranks of one machine");
  }
  if (rank < 0 || rank >= world) {
    host::throw_error(Status::kInvalidArgument, fmt::format("rank is {} in a world of {}", rank, world),
                      fmt::format("give each process one rank from 0 to {}", world - 1));
  }
}

std::string note_text(QueueNote note, std::uint64_t seq, const Settings& settings) {
  switch (note) {
    case QueueNote::kNone: return {};
    case QueueNote::kFull:
      return fmt::format(
          "the queue had no room: its {} slots held calls that were not complete; wait for the oldest ticket, or use a "
          "larger Config::queue_depth / RINGBELL_QUEUE_DEPTH",
          settings.queue_depth);
    case QueueNote::kKeptAway:
      return fmt::format(
          "call {} was waited for {:g} s while this rank itself keeps its worker parked (ParkedScope, park_and_stay); "
          "leave the ParkedScope, then the call runs and can be waited for again",
          seq, static_cast<double>(settings.timeout_ns) * 1e-9);
    case QueueNote::kUnknownTicket:
      return fmt::format(
          "the ticket names call {}, which this communicator has not queued; give a ticket that its all_reduce "
          "returned",
          seq);
    case QueueNote::kStaleTicket:
      return fmt::format(
          "the ticket of call {} is stale: {} newer calls or more have completed since and its result is no longer "
          "kept; "
          "wait for tickets earlier, or use a larger Config::queue_depth / RINGBELL_QUEUE_DEPTH",
          seq, settings.queue_depth);
    case QueueNote::kNoCall:
      return "the ticket names no call: nothing was queued under it; give a ticket that all_reduce returned";
  }
  return {};
}

}  // namespace

host::Deadline caller_deadline(double seconds) noexcept {
  if (seconds < 0) return host::Deadline::never();
  return seconds == 0 ? host::Deadline::after_ns(0) : host::Deadline::after_seconds(seconds);
}

Rank::Rank(const UniqueId& id, int rank, int world, int local_rank, const Config& config)
    : rank_((check_membership(rank, world), rank)),
      world_(world),
      settings_(resolve_settings(config, host::Env::of_process(), local_rank)) {
  const host::LogRankScope scope(rank_);
  const host::Deadline deadline = host::Deadline::after_seconds(settings_.init_timeout_s);
  basis_ = {static_cast<std::uint32_t>(world_), settings_.device, true,
            device::window_layout(settings_.slot_bytes, device::kDefaultSlots, static_cast<std::uint32_t>(world_))};

  host::SegmentGeometry geometry;
  geometry.control_bytes = device::control_bytes(settings_.queue_depth);
  geometry.window_bytes = settings_.device == DeviceKind::kCpu ? pages(basis_.layout.window_bytes()) : 0;
  const host::SizeSource sources[] = {
      {"device", settings_.device == DeviceKind::kCuda ? "cuda" : "cpu",
       "give all ranks the same Config::device / RINGBELL_DEVICE"},
      {"slot bytes", std::to_string(settings_.slot_bytes),
       "give all ranks the same Config::slot_bytes / RINGBELL_SLOT_BYTES"},
      {"queue depth", std::to_string(settings_.queue_depth),
       "give all ranks the same Config::queue_depth / RINGBELL_QUEUE_DEPTH"},
  };
  segment_ =
      std::make_unique<host::Segment>(host::Segment::create_or_open(id, rank_, world_, geometry, deadline, sources));
  liveness_ = std::make_unique<host::Liveness>(*segment_);
  fence_ = std::make_unique<host::Fence>(*segment_, *liveness_);
  try {
    set_up(deadline);
    dump_when_broken();
    host::add_serviced(this);
  } catch (const std::exception& error) {
    fence_->fail(error.what());
    if (executor_) {
      executor_->close_peers();
      executor_->destroy_window(false);
    }
    throw;
  }
  host::log_message(host::LogLevel::kInfo, describe());
}

// On the first error, by the thread that found it: the process may end before any other thread gets to it.
void Rank::dump_when_broken() {
  const std::optional<std::string> folder = host::Env::of_process().text(host::EnvVar::kDumpDir);
  if (!folder) return;
  check_dump_folder(*folder);
  queue_->when_broken([this, folder = *folder](Status status, const std::string& why) {
    FlightDump dump;
    dump.version = build_info().version;
    dump.session = segment_->name();
    dump.rank = rank_;
    dump.world = world_;
    dump.pid = host::self_identity().pid;
    dump.dumped_ns = host::monotonic_ns();
    dump.submitted = queue_->submitted();
    const ControlView view = view_control(segment_->control(rank_).data(), settings_.queue_depth);
    dump.completed = completed_calls(view);
    dump.stream_calls = streams_->issued();
    dump.failure = failure_facts(*view.control, context_.rank, dump.completed, settings_.timeout_ns);
    dump.failure.status = status;
    dump.failure.text = why;
    dump.records = queue_->recorder().records();
    write_dump(folder, dump);
  });
}

void Rank::set_up(host::Deadline deadline) {
  host::ExecutorConfig config;
  config.rank = rank_;
  config.world = world_;
  config.device_ordinal = settings_.device_ordinal;
  config.allow_shared_device = settings_.allow_shared_device;
  config.resident = settings_.resident;
  config.ask_every_time = settings_.check_pointers == CheckPointers::kAlways;
  config.window_bytes = basis_.layout.window_bytes();
  config.initial_words = initial_words(basis_.layout, settings_.first_epoch);
  config.fault = settings_.fault;
  executor_ =
      settings_.device == DeviceKind::kCuda ? host::make_cuda_executor(config) : host::make_cpu_executor(config);
  residency_refusal_ = executor_->residency_refusal();
  if (!residency_refusal_.empty()) {
    host::log_once("resident", host::LogLevel::kInfo,
                   "the worker does not stay, each call is launched: " + residency_refusal_);
  }
  if (!settings_.device_note.empty()) {
    host::log_once("device", host::LogLevel::kInfo, "running on the CPU: " + settings_.device_note);
  }

  context_.window[rank_] = executor_->create_window(*segment_);
  const Agreement mine = make_agreement(settings_, basis_.layout.slots, basis_.layout.channels, true);
  publish_agreement(*segment_, mine);
  fence_->publish(host::Phase::kWritten);
  fence_->wait_all(host::Phase::kWritten, deadline);
  try {
    check_agreement(*segment_, mine);
  } catch (const Error& error) {
    // About the group: a rank that reads it before it has compared for itself repeats it unchanged.
    segment_->publish_failure(error.what(), error.status());
    throw;
  }
  executor_->open_peers(*segment_, context_.window);

  const auto world = static_cast<std::uint32_t>(world_);
  context_.rank = static_cast<std::uint32_t>(rank_);
  context_.world = world;
  context_.ring_index = context_.rank;
  context_.ring_prev = (context_.rank + world - 1) % world;
  context_.ring_next = (context_.rank + 1) % world;
  context_.queue_depth = settings_.queue_depth;
  device::set_layout(&context_, basis_.layout);
  context_.way = device::kHostWay;
  context_.idle_park_ns = residency_refusal_.empty() ? settings_.idle_park_ns : 0;
  context_.lease_ns = settings_.lease_ns;
  context_.timeout_ns = settings_.timeout_ns;
  executor_->prepare(*segment_, context_, initial_state(settings_.first_epoch));
  segment_->card(rank_).capabilities = executor_->ll128_link() ? host::kCapabilityLl128 : 0;
  fence_->publish(host::Phase::kOpened);
  fence_->wait_all(host::Phase::kOpened, deadline);
  for (int peer = 0; peer < world_; ++peer) {
    if ((segment_->card(peer).capabilities & host::kCapabilityLl128) == 0) basis_.ll128_permitted = false;
  }

  std::byte* control = segment_->control(rank_).data();
  queue_ = std::make_unique<CallQueue>(
      *executor_, reinterpret_cast<device::ControlBlock*>(control),
      reinterpret_cast<device::CommandSlot*>(control + device::queue_offset()),
      reinterpret_cast<device::Completion*>(control + device::completions_offset(settings_.queue_depth)),
      CallQueueLimits{settings_.queue_depth, settings_.device == DeviceKind::kCuda ? kCudaSpins : kCpuSpins,
                      settings_.timeout_ns, context_.rank, residency_refusal_.empty()});
  streams_ = std::make_unique<StreamCalls>(*executor_, reinterpret_cast<device::ControlBlock*>(control));
}

Rank::~Rank() {
  const host::LogRankScope scope(rank_);
  host::remove_serviced(this);
  // Calls still queued get a moment; then they end with kAborted, here and on the peers.
  const host::Deadline drained = host::Deadline::after_seconds(kDrainSeconds);
  while (!queue_->broken() && queue_->keep_going() && !drained.expired()) sched_yield();
  if (!queue_->broken()) executor_->await_launched(drained);
  const bool streams_ended = end_streams(drained);
  if (!queue_->broken() && (!streams_ended || queue_->keep_going())) abort_here();
  const host::Deadline stopped = host::Deadline::after_seconds(kStopSeconds);
  bool at_rest = queue_->stop(stopped);
  if (!streams_ended) at_rest = end_streams(stopped) && at_rest;
  if (!at_rest) {
    host::log_message(host::LogLevel::kWarn,
                      "the worker, or a stream that this communicator was used with, did not come to rest in time; its "
                      "memory is kept until process exit");
  }
  executor_->close_peers();
  fence_->publish(host::Phase::kClosed);
  bool confirmed = false;
  if (settings_.device == DeviceKind::kCuda && at_rest) {
    confirmed = fence_->try_wait_all(host::Phase::kClosed, host::Deadline::after_seconds(kCloseSeconds), nullptr) ==
                Status::kOk;
  }
  executor_->destroy_window(confirmed);
  if (!at_rest) {
    (void)executor_.release();
    (void)segment_.release();
  }
}

// A stream may hold launched calls, which touch windows, and stores into the queue. @return true when it does no more
bool Rank::end_streams(host::Deadline deadline) noexcept {
  if (!executor_->close_launched(deadline)) return false;
  while (queue_->stores_pending()) {
    if (deadline.expired()) return false;
    sched_yield();
  }
  return true;
}

void Rank::note_executor_error(const char* what) noexcept {
  try {
    set_error(fmt::format("{}: {}", what, executor_->error_text()));
  } catch (...) {
  }
}

std::uint8_t Rank::common_flags() const noexcept { return residency_refusal_.empty() ? 0 : device::kFlagLastOfBurst; }

device::Command Rank::nop_command() const noexcept {
  device::Command command{};
  command.kind = device::CommandKind::kNop;
  command.flags = device::kFlagGpuScopeComplete | common_flags();  // it has no output
  return command;
}

Status Rank::issue_on(Stream stream, const device::Command& command) noexcept {
  if (queue_->broken()) return queue_->broken_status();
  const Status status = streams_->issue(stream, command);
  if (status != Status::kOk) note_executor_error("stream");
  if (status == Status::kSystem) queue_->driver_refused();
  if (status == Status::kOk) {
    queue_->note_path({command.algorithm, command.protocol, command.channels, command.chunk_bytes});
  }
  return status;
}

Status Rank::check_stream(Stream stream, host::Deadline deadline) noexcept {
  Status status = executor_->check_stream(stream, host::StreamUse::kCheck);
  if (status == Status::kOk) status = executor_->await_stream(stream, deadline);
  if (status != Status::kOk && status != Status::kAgain) note_executor_error("stream");
  take_stream_failure();
  return queue_->broken() ? queue_->broken_status() : status;
}

// The first failure of a launched call breaks the communicator: the peers of the call know it already.
void Rank::take_stream_failure() noexcept {
  if (queue_->broken()) return;
  const auto record = streams_->failure();
  if (!record) return;
  std::string text;
  try {
    text = failure_text(*record, context_.rank, settings_.timeout_ns, device::kStreamWay);
  } catch (...) {
  }
  queue_->abort(device::abort_code(record->status, record->reporter, record->peer), text);
}

Stats Rank::stats() noexcept {
  Stats stats = queue_->stats();
  stats.stream_calls = streams_->issued();
  return stats;
}

Status Rank::check_range(const void* pointer, std::uint64_t bytes, const char* name, bool* plain) noexcept {
  host::PointerInfo info;
  const Status status = executor_->check_range(pointer, bytes, &info);
  if (status != Status::kOk) {
    note_executor_error(name);
    return status;
  }
  *plain = info.plain_device;
  return Status::kOk;
}

Status Rank::make_command(const AllReduceCall& call, device::Command* command) noexcept {
  const std::uint64_t bytes = call.count * dtype_bytes(call.dtype);
  bool out_is_plain = true;
  if (bytes != 0 && settings_.device == DeviceKind::kCuda && settings_.check_pointers != CheckPointers::kOff) {
    bool in_is_plain = false;
    Status status = check_range(call.in, bytes, "in", &in_is_plain);
    if (status == Status::kOk) status = check_range(call.out, bytes, "out", &out_is_plain);
    if (status != Status::kOk) return status;
  } else if (settings_.check_pointers == CheckPointers::kOff) {
    out_is_plain = false;  // nobody asked: the wider fence
  }
  const auto wanted = [](auto of_call, auto of_comm) { return static_cast<int>(of_call) != 0 ? of_call : of_comm; };
  if (call.options.after) {
    const Status status = executor_->check_stream(*call.options.after, host::StreamUse::kAfter);
    if (status != Status::kOk) {
      note_executor_error("after");
      return status;
    }
  }
  const Path path = plan_call(basis_, bytes, wanted(call.options.algorithm, settings_.algorithm),
                              wanted(call.options.protocol, settings_.protocol));
  if (path.protocol == Protocol::kAuto) {
    try {
      set_error(
          "LL128 is not permitted here: a link of this group does not keep 128-byte lines whole; use LL or Simple");
    } catch (...) {
    }
    return Status::kUnsupported;
  }
  *command = {};
  command->in = call.in;
  command->out = call.out;
  command->count = call.count;
  command->tag = call.options.tag;
  command->chunk_bytes = path.chunk_bytes;
  command->kind = device::CommandKind::kAllReduce;
  command->flags = static_cast<std::uint8_t>((call.options.last_of_burst ? device::kFlagLastOfBurst : 0) |
                                             (out_is_plain ? device::kFlagGpuScopeComplete : 0) | common_flags());
  command->dtype = call.dtype;
  command->op = call.op;
  command->algorithm = path.algorithm;
  command->protocol = path.protocol;
  command->channels = static_cast<std::uint16_t>(path.channels);
  return Status::kOk;
}

void Rank::abort_here() noexcept {
  try {
    queue_->abort(device::abort_code(Status::kAborted, static_cast<unsigned>(rank_), static_cast<unsigned>(rank_)),
                  fmt::format("rank {} aborted", rank_));
  } catch (...) {
    queue_->abort(device::abort_code(Status::kAborted, static_cast<unsigned>(rank_), static_cast<unsigned>(rank_)), {});
  }
}

bool Rank::tick() noexcept {
  const host::LogRankScope scope(rank_);
  // In this order: what breaks in the first is told by the second.
  const bool queued = queue_->keep_going();
  const bool outstanding = queue_->relay_abort() || queued;
  const std::uint64_t now = host::monotonic_ns();
  if (now - watched_ns_ >= kWatchEveryNs) {
    watched_ns_ = now;
    liveness_->tick();
    take_stream_failure();
    if (outstanding || streams_->is_waiting()) {
      if (executor_->health() != Status::kOk) queue_->fail(Status::kSystem, executor_->error_text());
      watch_peers();
    }
  }
  return outstanding;
}

// A call is outstanding: a peer that is gone, or has left the group, cannot take part any more.
void Rank::watch_peers() noexcept {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    const host::Phase phase = segment_->phase(peer);
    const bool left = phase == host::Phase::kClosed || phase == host::Phase::kFailed;
    const bool lost = !left && liveness_->peer(peer) == host::PeerState::kLost;
    if (!left && !lost) {
      absent_since_ns_[peer] = 0;
      continue;
    }
    if (absent_since_ns_[peer] == 0) absent_since_ns_[peer] = watched_ns_;
    if (watched_ns_ - absent_since_ns_[peer] < kGraceNs) continue;
    std::string text;
    try {
      text = fmt::format("{} {} while calls that need it were queued; rebuild the communicator",
                         liveness_->describe(peer), left ? "has left the group" : "is gone");
    } catch (...) {
    }
    queue_->abort(device::abort_code(Status::kPeerLost, static_cast<unsigned>(rank_), static_cast<unsigned>(peer)),
                  text);
    return;
  }
}

void Rank::set_error(std::string text) {
  const std::lock_guard lock(error_mutex_);
  error_ = std::move(text);
  queue_->forget_note();
}

std::string Rank::last_error() const {
  if (queue_->broken()) return fmt::format("rank {}: {}", rank_, queue_->broken_text());
  const std::lock_guard lock(error_mutex_);
  if (const QueueNote note = queue_->note(); note != QueueNote::kNone) {
    return fmt::format("rank {}: {}", rank_, note_text(note, queue_->note_seq(), settings_));
  }
  return error_.empty() ? error_ : fmt::format("rank {}: {}", rank_, error_);
}

std::string Rank::describe() const {
  const BuildInfo& build = build_info();
  const bool cuda = settings_.device == DeviceKind::kCuda;
  return fmt::format("ringbell {} ({:.10}) rank {} of {} on {}, protocols LL{} Simple, queue {}, {}, session {}",
                     build.version, build.commit, rank_, world_,
                     cuda ? fmt::format("cuda:{} {}", settings_.device_ordinal, segment_->card(rank_).pci_id) : "cpu",
                     basis_.ll128_permitted ? " LL128" : " (LL128 not permitted)", settings_.queue_depth,
                     residency_refusal_.empty() ? fmt::format("idle park {} us, lease {} us",
                                                              settings_.idle_park_ns / 1000, settings_.lease_ns / 1000)
                                                : "each call is launched (" + residency_refusal_ + ")",
                     segment_->name());
}

}  // namespace ringbell
