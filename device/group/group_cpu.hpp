// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One CPU thread stands for the whole worker: every barrier and vote is trivial.
#ifndef RINGBELL_DEVICE_GROUP_GROUP_CPU_HPP_
#define RINGBELL_DEVICE_GROUP_GROUP_CPU_HPP_

#include "device/group/group.hpp"

namespace ringbell::device {

class CpuGroup {
 public:
  static constexpr bool kMayBeOneTeam = true;
  static constexpr unsigned kLineLanes = 1;
  static constexpr unsigned kTeamQuads = kCommandQuads;
  static constexpr unsigned lane() { return 0; }
  static constexpr unsigned lanes() { return 1; }
  static constexpr unsigned all_lanes() { return 1; }
  static constexpr bool alone() { return true; }
  static constexpr bool all_here() { return true; }
  GroupShared& shared() { return shared_; }
  static void sync(Edge) {}
  static Status agree(Status status, Edge) { return status; }
  static constexpr unsigned line_lane() { return 0; }
  static constexpr bool line_all(bool flag) { return flag; }
  static void line_sync() {}
  static constexpr bool line_together() { return true; }
  static constexpr bool in_poll_team() { return true; }
  static constexpr bool in_header_team() { return true; }
  static constexpr bool in_layout_team() { return true; }
  static constexpr unsigned team_lane() { return 0; }
  static constexpr unsigned team_lanes() { return 1; }
  static constexpr bool team_all(bool flag) { return flag; }
  static constexpr std::uint64_t team_broadcast(std::uint64_t word) { return word; }
  static void team_sync() {}
  bool claim_failure() { return shared_.failure_taken++ == 0; }

 private:
  GroupShared shared_{};
};
static_assert(Group<CpuGroup>);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_GROUP_GROUP_CPU_HPP_
