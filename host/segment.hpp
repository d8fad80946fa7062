// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One shared-memory segment per session: made by rank 0, opened by the others, owned by all. Boot-strap only knows
// names, owners, sizes and claims here; waiting for peers is host/fence.hpp, who is alive host/liveness.hpp. What the
// control bytes and windows hold is the caller's.
#ifndef RINGBELL_HOST_SEGMENT_HPP_
#define RINGBELL_HOST_SEGMENT_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/ringbell_types.hpp"
#include "device/ringbell_unique_id.hpp"
#include "host/clock.hpp"
#include "host/segment_layout.hpp"

namespace ringbell::host {

class RankInSetUp;    // finds a second thread of the process that believes to be this rank
class SharedMapping;  // one file descriptor and one mapping per process and segment, shared by the ranks of the process

/// What the sizes of a session follow from, by its name: "queue depth", "64". Ranks that disagree on sizes are told
/// this instead. The same names in the same order on every rank; values of up to kSizeSourceChars - 1 characters.
struct SizeSource {
  const char* name;
  std::string value;
  const char* remedy;
};

/// A rank's share of the segment. Movable, not copyable. All accessors are thread-safe and valid until destruction.
class Segment {
 public:
  /// Rank 0 creates the segment (O_EXCL, mode 0600 under any umask), the others open it, waiting for it until
  /// `deadline`. Then the rank takes its file lock, claims its rank, reserves its own pages and fills the identity part
  /// of its card (phase kClaimed). Blocks up to the deadline; never touches a page that is not reserved.
  /// @param geometry the same on every rank, page multiples
  /// @param sources  what the geometry follows from, at most kSizeSources: named when ranks disagree
  /// @throws Error kInvalidArgument: bad rank, world, geometry or id; rank claimed twice; ranks disagree on world,
  ///   sources or geometry. The ranks that wait at a Fence for this one then end with the same text. kTimeout: no
  ///   segment appeared (says what was found instead). kSystem: /dev/shm is full (needed and free bytes), wrong owner,
  ///   mode, content or version under the name. Nothing of this call is left behind.
  static Segment create_or_open(const UniqueId& id, int rank, int world, const SegmentGeometry& geometry,
                                Deadline deadline, std::span<const SizeSource> sources = {});

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  /// Publishes kFailed when set-up had not reached kOpened, kClosed otherwise; gives the lock back; removes the name if
  /// it is still there and this is rank 0, or its owner is gone; the last rank of the process unmaps and closes. In a
  /// fork's child it only unmaps. Nobody may use the control bytes or windows of this rank afterwards.
  ~Segment();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] const SegmentGeometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Stays open for the life of the session (`top` finds it). Never close it, nor open and close the file again: that
  /// would drop this process's liveness locks.
  [[nodiscard]] int fd() const noexcept;
  [[nodiscard]] std::byte* base() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;

  [[nodiscard]] SegmentHeader& header() const noexcept;
  /// Read a peer's card only after Fence::wait_all of the phase that makes the part valid.
  [[nodiscard]] RankCard& card(int rank) const noexcept;
  [[nodiscard]] std::span<std::byte> control(int rank) const noexcept;
  [[nodiscard]] std::span<std::byte> window(int rank) const noexcept;

  /// True when `peer` is a thread of this process. False while nobody has taken `peer`.
  [[nodiscard]] bool same_process(int peer) const noexcept;
  /// False in a child of fork: nothing may be published from there.
  [[nodiscard]] bool in_owner_process() const noexcept;

  // edge PHASE: release in publish_phase, acquire in phase
  void publish_phase(Phase phase) noexcept;
  [[nodiscard]] Phase phase(int rank) const noexcept;
  [[nodiscard]] Phase reached(int rank) const noexcept;
  /// Writes `text` (cut to the card's buffer) and publishes kFailed. The first text wins. One thread of the rank at a
  /// time.
  /// @param verdict kOk: the text is this rank's own failure; else it is about the group ("rank 2 died ..."), and every
  ///   rank that reads it repeats it unchanged with this status
  void publish_failure(std::string_view text, Status verdict = Status::kOk) noexcept;
  struct Failure {
    Status status;
    std::string text;  ///< "rank 2 failed to start: ..", or the verdict
  };
  /// Why `rank` failed. Precondition: phase(rank) == kFailed.
  [[nodiscard]] Failure failure(int rank) const;
  /// Why a rank that found this segment may not take part, with both values; empty when there is none.
  [[nodiscard]] std::string refusal() const;
  /// The rank that is claimed twice, -1 when there is none.
  [[nodiscard]] int doubly_claimed_rank() const noexcept;
  [[nodiscard]] std::string double_claim_text(int rank) const;
  /// True once somebody has taken the rank. Before, nothing can be said of it.
  [[nodiscard]] bool is_claimed(int rank) const noexcept;
  /// Of the rank's owner, in the owner's PID namespace; 0 when not known. For messages.
  [[nodiscard]] std::uint32_t owner_pid(int rank) const noexcept;

  /// False when nobody finds this segment by its name any more.
  [[nodiscard]] bool is_named() const noexcept;
  /// Removes the name if it still leads to this segment. Idempotent. @return true when nothing is left under the name.
  bool unlink_name() noexcept;

 private:
  enum class Named { kThis, kAnother, kNothing, kUnknown };

  Segment();
  [[nodiscard]] Named find_name() const noexcept;
  void claim();
  void write_identity();
  void reserve_own_pages();
  void linger_after_failure() const noexcept;
  void close() noexcept;

  int rank_ = 0;
  int world_ = 0;
  SegmentGeometry geometry_;
  std::string name_;
  std::shared_ptr<SharedMapping> mapping_;
  std::unique_ptr<RankInSetUp> set_up_;  ///< null once set-up is over
  std::uint64_t opened_at_ns_ = 0;
  bool claimed_ = false;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_HPP_
