// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What `perf --against` knows: the peers' names, and what each one's processes find in their environment. Pure.
#ifndef RINGBELL_TOOLS_PEER_NAMES_HPP_
#define RINGBELL_TOOLS_PEER_NAMES_HPP_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/parse.hpp"

namespace ringbell::tools {

enum class PeerKind : std::uint8_t {
  kNccl,
  kNcclSymmetric,  ///< buffers from NCCL's own allocator, registered as symmetric windows
  kLaunch,         ///< ringbell with a launch per call
  kMpi,
};

struct PeerName {
  const char* name;
  PeerKind kind;
  /// Set in its processes, "" for nothing: before any library reads it.
  const char* algorithm = "";  ///< NCCL_ALGO
  const char* protocol = "";   ///< NCCL_PROTO
  bool no_p2p = false;         ///< NCCL_P2P_DISABLE

  [[nodiscard]] bool is_nccl() const { return kind == PeerKind::kNccl || kind == PeerKind::kNcclSymmetric; }
};

inline constexpr PeerName kPeerNames[] = {
    {"nccl", PeerKind::kNccl},
    {"nccl-sym", PeerKind::kNcclSymmetric},
    {"nccl-ring-ll", PeerKind::kNccl, "Ring", "LL"},
    {"nccl-ring-ll128", PeerKind::kNccl, "Ring", "LL128"},
    {"nccl-ring-simple", PeerKind::kNccl, "Ring", "Simple"},
    {"nccl-tree-ll", PeerKind::kNccl, "Tree", "LL"},
    {"nccl-tree-ll128", PeerKind::kNccl, "Tree", "LL128"},
    {"nccl-tree-simple", PeerKind::kNccl, "Tree", "Simple"},
    {"nccl-nop2p", PeerKind::kNccl, "", "", true},
    {"launch", PeerKind::kLaunch},
    {"mpi", PeerKind::kMpi},
};

/// What is set in the peer's processes on top of the user's environment.
inline std::map<std::string, std::string> forced_environment(const PeerName& peer) {
  std::map<std::string, std::string> forced;
  if (*peer.algorithm != 0) forced.emplace("NCCL_ALGO", peer.algorithm);
  if (*peer.protocol != 0) forced.emplace("NCCL_PROTO", peer.protocol);
  if (peer.no_p2p) forced.emplace("NCCL_P2P_DISABLE", "1");
  if (peer.kind == PeerKind::kLaunch) forced.emplace("RINGBELL_RESIDENT", "0");
  return forced;
}

inline std::vector<std::string_view> peer_names() {
  std::vector<std::string_view> names;
  for (const PeerName& peer : kPeerNames) names.emplace_back(peer.name);
  return names;
}

/// "nccl,mpi" in that order. @throws UsageError: unknown names, and one given twice
inline std::vector<PeerName> parse_peers(std::string_view option, std::string_view text) {
  std::vector<PeerName> peers;
  for (const std::string_view part : split_list(option, text)) {
    const PeerName& peer = kPeerNames[parse_choice(option, part, peer_names())];
    const bool twice =
        std::any_of(peers.begin(), peers.end(), [&](const PeerName& other) { return other.name == peer.name; });
    if (twice) refuse(option, text, std::string(part) + " is there twice: name every peer once");
    peers.push_back(peer);
  }
  return peers;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PEER_NAMES_HPP_
