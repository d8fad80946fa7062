// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/liveness.hpp"
#include "host/log.hpp"
#include "host/process_identity.hpp"
#include "host/rank_in_set_up.hpp"
#include "host/segment_name.hpp"
#include "host/shared_mapping.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

std::atomic_ref<std::uint64_t> shared(std::uint64_t& word) noexcept { return std::atomic_ref<std::uint64_t>(word); }

void check_arguments(int rank, int world, const SegmentGeometry& geometry, std::span<const SizeSource> sources) {
  if (world < 1 || world > kMaxRanks) {
    throw_error(Status::kInvalidArgument, fmt::format("world={}", world),
                fmt::format("a group has 1 to {} ranks", kMaxRanks));
  }
  if (rank < 0 || rank >= world) {
    throw_error(Status::kInvalidArgument, fmt::format("rank={} with world={}", rank, world),
                fmt::format("ranks go from 0 to {}", world - 1));
  }
  constexpr std::size_t kLargest = std::size_t{1} << 40;
  for (const std::size_t bytes : {geometry.control_bytes, geometry.window_bytes}) {
    if (bytes % kPageBytes != 0 || bytes > kLargest) {
      throw_error(Status::kInvalidArgument, fmt::format("{} bytes per rank in the segment", bytes),
                  fmt::format("use a multiple of {} up to {}", kPageBytes, kLargest));
    }
  }
  if (sources.size() > kSizeSources) {
    throw_error(Status::kInvalidArgument, fmt::format("{} size sources", sources.size()),
                fmt::format("a segment keeps {}", kSizeSources));
  }
}

}  // namespace

const char* phase_name(Phase phase) noexcept {
  switch (phase) {
    case Phase::kNone: return "none";
    case Phase::kClaimed: return "claimed";
    case Phase::kWritten: return "written";
    case Phase::kOpened: return "opened";
    case Phase::kClosed: return "closed";
    case Phase::kFailed: return "failed";
  }
  return "?";
}

Segment Segment::create_or_open(const UniqueId& id, int rank, int world, const SegmentGeometry& geometry,
                                Deadline deadline, std::span<const SizeSource> sources) {
  check_arguments(rank, world, geometry, sources);
  unique_id_validate(id);
  Segment segment;
  segment.rank_ = rank;
  segment.world_ = world;
  segment.geometry_ = geometry;
  segment.name_ = unique_id_segment_name(id);
  segment.opened_at_ns_ = monotonic_ns();
  segment.set_up_ = std::make_unique<RankInSetUp>(segment.name_, rank);
  const SegmentExpectation expected{id, segment.name_, rank, world, geometry, sources, *segment.set_up_};
  segment.mapping_ = rank == 0 ? create_segment_file(expected, deadline) : open_segment_file(expected, deadline);
  segment.claim();
  segment.set_up_->tell_peers_at(&segment.header().claim[rank].second);
  if (segment.set_up_->is_doubled()) {
    const std::uint32_t me = self_identity().pid;
    const std::string text = host::double_claim_text(rank, me, me, true);
    segment.publish_failure(text, Status::kInvalidArgument);
    throw_error(Status::kInvalidArgument, text);
  }
  try {
    segment.reserve_own_pages();
  } catch (const std::exception& error) {
    segment.publish_failure(error.what());
    throw;
  }
  return segment;
}

Segment::Segment() = default;

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  close();
  rank_ = other.rank_;
  world_ = other.world_;
  geometry_ = other.geometry_;
  name_ = std::move(other.name_);
  mapping_ = std::move(other.mapping_);
  set_up_ = std::move(other.set_up_);
  opened_at_ns_ = other.opened_at_ns_;
  claimed_ = std::exchange(other.claimed_, false);
  other.mapping_.reset();
  return *this;
}

Segment::~Segment() { close(); }

// The lock comes before the claim: a rank that looks claimed and unlocked would pass for dead.
void Segment::claim() {
  ClaimLine& line = header().claim[rank_];
  const ProcessIdentity self = self_identity();
  const std::uint32_t me = self.pid;
  std::uint32_t holder = 0;
  const bool locked = lock_rank_byte(fd(), rank_, &holder);
  std::uint64_t free = 0;
  if (locked && shared(line.owner).compare_exchange_strong(free, self.process_token, std::memory_order_acq_rel)) {
    claimed_ = true;
    shared(line.owner_pid).store(me, std::memory_order_relaxed);
    shared(header().heartbeat[rank_].beat_ns).store(monotonic_ns(), std::memory_order_relaxed);
    write_identity();
    publish_phase(Phase::kClaimed);
    return;
  }
  // A lock taken here although the rank is claimed may be the one of another thread's rank: it is not given back.
  std::uint64_t none = 0;
  shared(line.second).compare_exchange_strong(none, me, std::memory_order_acq_rel);
  if (holder == 0) holder = owner_pid(rank_);
  throw_error(Status::kInvalidArgument, host::double_claim_text(rank_, holder, me, holder == me));
}

void Segment::write_identity() {
  const ProcessIdentity me = self_identity();
  RankCard& own = card(rank_);
  own.magic = kCardMagic;
  own.nonce = header().nonce;
  own.rank = static_cast<std::uint32_t>(rank_);
  own.uid = me.uid;
  own.pid = me.pid;
  own.start_time = me.start_time;
  own.pid_namespace = me.pid_namespace;
  own.host_hash = me.host_hash;
  own.process_token = me.process_token;
}

void Segment::reserve_own_pages() {
  const std::size_t total = segment_bytes(world_, geometry_);
  reserve_pages(fd(), control_offset(rank_, world_, geometry_), geometry_.control_bytes, total);
  reserve_pages(fd(), window_offset(rank_, world_, geometry_), geometry_.window_bytes, total);
}

int Segment::fd() const noexcept { return mapping_->fd(); }
std::byte* Segment::base() const noexcept { return mapping_->base(); }
std::size_t Segment::bytes() const noexcept { return mapping_->bytes(); }
SegmentHeader& Segment::header() const noexcept { return *reinterpret_cast<SegmentHeader*>(base()); }
RankCard& Segment::card(int rank) const noexcept { return *reinterpret_cast<RankCard*>(base() + card_offset(rank)); }

std::span<std::byte> Segment::control(int rank) const noexcept {
  return {base() + control_offset(rank, world_, geometry_), geometry_.control_bytes};
}
std::span<std::byte> Segment::window(int rank) const noexcept {
  return {base() + window_offset(rank, world_, geometry_), geometry_.window_bytes};
}

bool Segment::same_process(int peer) const noexcept {
  return shared(header().claim[peer].owner).load(std::memory_order_acquire) ==
         shared(header().claim[rank_].owner).load(std::memory_order_relaxed);
}

bool Segment::in_owner_process() const noexcept { return mapping_ && mapping_->owner_pid() == getpid(); }

void Segment::publish_phase(Phase phase) noexcept {
  PhaseLine& line = header().phase[rank_];
  shared(line.reached).store(static_cast<std::uint64_t>(phase), std::memory_order_relaxed);
  // edge PHASE: release; what this phase promises was written before
  shared(line.phase).store(static_cast<std::uint64_t>(phase), std::memory_order_release);
  if (phase >= Phase::kOpened) set_up_.reset();
}

Phase Segment::phase(int rank) const noexcept {
  // edge PHASE: acquire
  const std::uint64_t value = shared(header().phase[rank].phase).load(std::memory_order_acquire);
  return value > static_cast<std::uint64_t>(Phase::kFailed) ? Phase::kFailed : static_cast<Phase>(value);
}

Phase Segment::reached(int rank) const noexcept {
  const std::uint64_t value = shared(header().phase[rank].reached).load(std::memory_order_relaxed);
  return value > static_cast<std::uint64_t>(Phase::kFailed) ? Phase::kFailed : static_cast<Phase>(value);
}

void Segment::publish_failure(std::string_view text, Status verdict) noexcept {
  if (!claimed_ || !in_owner_process() || phase(rank_) == Phase::kFailed) return;
  RankCard& own = card(rank_);
  const std::size_t length = std::min(text.size(), sizeof own.error_text - 1);
  std::memcpy(own.error_text, text.data(), length);
  own.error_text[length] = 0;
  own.error_verdict = static_cast<std::uint32_t>(verdict);
  // edge PHASE: release; `reached` keeps the phase before
  shared(header().phase[rank_].phase).store(static_cast<std::uint64_t>(Phase::kFailed), std::memory_order_release);
  set_up_.reset();
}

Segment::Failure Segment::failure(int rank) const {
  const RankCard& theirs = card(rank);
  const std::string text(theirs.error_text, strnlen(theirs.error_text, sizeof theirs.error_text));
  if (theirs.error_verdict != 0 && theirs.error_verdict < static_cast<std::uint32_t>(kStatusCount)) {
    return {static_cast<Status>(theirs.error_verdict), text};
  }
  return {Status::kAborted, fmt::format("rank {} failed to start: {}", rank, text)};
}

int Segment::doubly_claimed_rank() const noexcept {
  for (int rank = 0; rank < world_; ++rank) {
    if (shared(header().claim[rank].second).load(std::memory_order_acquire) != 0) return rank;
  }
  return -1;
}

std::string Segment::double_claim_text(int rank) const {
  const auto second = shared(header().claim[rank].second).load(std::memory_order_acquire);
  return host::double_claim_text(rank, owner_pid(rank), static_cast<std::uint32_t>(second), false);
}

std::string Segment::refusal() const {
  const RefusalNote& note = header().refusal;
  // edge REFUSAL: acquire
  const std::uint64_t state = shared(header().refusal.state).load(std::memory_order_acquire);
  if (state != static_cast<std::uint64_t>(Refusal::kWritten)) return {};
  return {note.text, strnlen(note.text, sizeof note.text)};
}

bool Segment::is_claimed(int rank) const noexcept {
  return shared(header().claim[rank].owner).load(std::memory_order_acquire) != 0;
}

std::uint32_t Segment::owner_pid(int rank) const noexcept {
  return static_cast<std::uint32_t>(shared(header().claim[rank].owner_pid).load(std::memory_order_relaxed));
}

Segment::Named Segment::find_name() const noexcept {
  struct stat info {};
  try {
    if (lstat(shm_path(name_).c_str(), &info) != 0) return errno == ENOENT ? Named::kNothing : Named::kUnknown;
  } catch (...) {
    return Named::kUnknown;  // no memory to ask
  }
  // The file, not only its nonce: the same inode that this process has open.
  const bool same = info.st_dev == mapping_->device() && info.st_ino == mapping_->inode();
  return same ? Named::kThis : Named::kAnother;
}

bool Segment::is_named() const noexcept {
  const Named named = find_name();
  return named == Named::kThis || named == Named::kUnknown;
}

bool Segment::unlink_name() noexcept {
  if (!in_owner_process()) return false;
  if (const Named named = find_name(); named != Named::kThis) return named == Named::kNothing;
  return shm_unlink(name_.c_str()) == 0 || errno == ENOENT;
}

void Segment::linger_after_failure() const noexcept {
  while (monotonic_ns() - opened_at_ns_ < kLingerNs) {
    bool all = true;
    for (int rank = 0; rank < world_; ++rank) all = all && is_claimed(rank);
    if (all) return;
    sleep_ns(5'000'000);
  }
}

void Segment::close() noexcept {
  if (!mapping_) return;
  if (!claimed_ && rank_ == 0) unlink_name();  // made, but never taken
  if (claimed_ && in_owner_process()) {
    const Phase now = phase(rank_);
    if (now < Phase::kOpened) publish_failure("its set-up was given up");
    if (now == Phase::kOpened) publish_phase(Phase::kClosed);
    const bool failed = phase(rank_) == Phase::kFailed;
    if (rank_ == 0) {
      if (failed) linger_after_failure();
      unlink_name();
    } else if (failed && is_claimed(0) && !same_process(0) && rank_byte_is_free(fd(), 0)) {
      unlink_name();  // rank 0 is gone and cannot (own locks look free, hence the other two questions)
    }
    unlock_rank_byte(fd(), rank_);
  }
  claimed_ = false;
  set_up_.reset();
  release_mapping(mapping_);
}

}  // namespace ringbell::host
