// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The lanes of one worker: a CTA on CUDA, one thread on a CPU, a few scheduled threads in the explorer. `GroupShared`
// is the storage they share.
#ifndef RINGBELL_DEVICE_GROUP_GROUP_HPP_
#define RINGBELL_DEVICE_GROUP_GROUP_HPP_

#include <concepts>

#include "device/mem/edges.hpp"
#include "device/ring/step.hpp"

namespace ringbell::device {

enum class Verdict : std::uint32_t { kRun, kLeave, kAbort };

/// Lane 0 writes between two barriers, everybody reads after the second, unless a field says otherwise.
struct GroupShared {
  Quad command_quad[kCommandQuads];
  Operation op;
  Verdict verdict;
  ParkReason park_after;        // the operation just run asks to park; written by the header team
  std::uint32_t failure_taken;  // first failing lane claims the record
  WaitRecord failure;
  bool told_slow;  // a wait of the launch has told the host that it is slow; only set
  std::uint64_t published_bytes;
  std::uint64_t launch_ns;
  bool alone;      // see Group::alone
  unsigned lanes;  // of the operation: whole teams from the first on
  Link links[kWireFormats];
  bool laid_ahead;  // rounds[0] is that of one more operation of the last one's shape; of the poll team
  Round rounds[2];  // by parity; written before a barrier of the round before
  std::uint64_t credit_seen[kWireFormats];  // slots that the next rank is known to have freed
  Persistent persistent;                    // copy of the context's, while the worker runs
  std::uint64_t direct_end;                 // persistent.direct_epoch after the operation; of lane 0
  // Of a launched call; written by the header team.
  Status refused;    // kOk, or why it must not run
  bool sends_ahead;  // its first step is done before its steps are laid out; false in a worker that stays
  bool kept_early;   // what the next call needs is stored already
};

template <class G>
concept Group = requires(G& g, Edge edge, Status status, bool flag, std::uint64_t word) {
  { g.lane() } -> std::convertible_to<unsigned>;
  { g.all_lanes() } -> std::convertible_to<unsigned>;
  { g.shared() } -> std::same_as<GroupShared&>;
  // Lanes that move lines, and whether the poll team is alone in the operation. Constant from kOpStart to kOpEnd;
  // between operations only the poll team knows.
  { g.lanes() } -> std::convertible_to<unsigned>;
  { g.alone() } -> std::same_as<bool>;
  { g.all_here() } -> std::same_as<bool>;  // every lane takes part in the operation
  // sync also orders memory among the lanes that meet; agree is a sync that returns their worst status. At kSlotRead
  // and kSlotFill the lanes that move lines meet, elsewhere all do; but teams that have nothing to do in an operation
  // may stay at kOpStart, and a poll team that is alone passes kOpStart and kOpEnd by itself.
  {g.sync(edge)};
  { g.agree(status, edge) } -> std::same_as<Status>;
  // Lanes that move one LL128 line together (a divisor of 8): called by all of them.
  { g.line_lane() } -> std::convertible_to<unsigned>;
  { G::kLineLanes } -> std::convertible_to<unsigned>;
  { g.line_all(flag) } -> std::same_as<bool>;
  {g.line_sync()};                                     // barrier and memory order among them
  { g.line_together() } -> std::same_as<bool>;         // the same to all of them: the next instruction they do as one
  { G::kTeamQuads } -> std::convertible_to<unsigned>;  // command quads that one lane of a team reads
  { G::kMayBeOneTeam } -> std::convertible_to<bool>;   // false: there is always a team for headers
  // Teams: lanes that step together (a warp). The first polls the queue; headers are looked after by the last, or by
  // the first when it is alone.
  { g.in_poll_team() } -> std::same_as<bool>;
  { g.in_header_team() } -> std::same_as<bool>;
  { g.in_layout_team() } -> std::same_as<bool>;  // of the operation's teams, the one that lays out rounds
  { g.team_lane() } -> std::convertible_to<unsigned>;
  { g.team_lanes() } -> std::convertible_to<unsigned>;
  { g.team_all(flag) } -> std::same_as<bool>;
  { g.team_broadcast(word) } -> std::same_as<std::uint64_t>;  // of team lane 0
  {g.team_sync()};                                            // barrier and memory order within the team
  // True for exactly one lane per operation.
  { g.claim_failure() } -> std::same_as<bool>;
};

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_GROUP_GROUP_HPP_
