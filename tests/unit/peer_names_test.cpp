// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The names of --against, and what each peer's processes find in their environment.
#include "tools/peer_names.hpp"

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

std::string refusal_of(const char* text) {
  try {
    static_cast<void>(parse_peers("--against", text));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PeerNames, KeepTheOrderOfTheList) {
  const std::vector<PeerName> peers = parse_peers("--against", "mpi,nccl-tree-ll128,launch");
  ASSERT_EQ(peers.size(), 3U);
  EXPECT_STREQ(peers[0].name, "mpi");
  EXPECT_STREQ(peers[1].name, "nccl-tree-ll128");
  EXPECT_STREQ(peers[2].name, "launch");
  EXPECT_TRUE(peers[1].is_nccl());
  EXPECT_FALSE(peers[2].is_nccl());
}

TEST(PeerNames, AnUnknownOneListsThemAll) {
  const std::string text = refusal_of("nccl,gloo");
  EXPECT_NE(text.find("'gloo'"), std::string::npos) << text;
  for (const PeerName& peer : kPeerNames) EXPECT_NE(text.find(peer.name), std::string::npos) << peer.name;
}

TEST(PeerNames, TwiceAndEmptyAreRefused) {
  EXPECT_NE(refusal_of("mpi,mpi").find("mpi is there twice"), std::string::npos);
  EXPECT_NE(refusal_of("mpi,"), "");
  EXPECT_NE(refusal_of(""), "");
}

TEST(PeerNames, ForceWhatTheyAreNamedAfter) {
  using Variables = std::map<std::string, std::string>;
  const auto forced = [](const char* name) { return forced_environment(parse_peers("--against", name).front()); };
  EXPECT_EQ(forced("nccl"), Variables{});
  EXPECT_EQ(forced("nccl-sym"), Variables{});
  EXPECT_EQ(forced("mpi"), Variables{});
  EXPECT_EQ(forced("nccl-ring-ll"), (Variables{{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}));
  EXPECT_EQ(forced("nccl-tree-simple"), (Variables{{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "Simple"}}));
  EXPECT_EQ(forced("nccl-nop2p"), (Variables{{"NCCL_P2P_DISABLE", "1"}}));
  EXPECT_EQ(forced("launch"), (Variables{{"RINGBELL_RESIDENT", "0"}}));
}

}  // namespace
}  // namespace ringbell::tools
