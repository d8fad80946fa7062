// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What is read out of NCCL's debug log, in the forms of 2.18 to 2.28. Lines made up after those forms.
#include "tools/nccl_log.hpp"

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

constexpr const char* kPrefix = "somehost:1234:1240 [0] NCCL INFO ";

std::string path_text(const std::string& log) {
  const auto path = nccl_path(log);
  return path ? path->algorithm + " " + path->protocol : "";
}

TEST(NcclLog, NamesOfNewerVersions) {
  const std::string prefix = kPrefix;
  EXPECT_EQ(path_text(prefix + "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"), "ring LL");
  EXPECT_EQ(path_text(prefix + "AllReduce: 65536 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..3}"), "tree LL128");
  EXPECT_EQ(path_text(prefix + "AllReduce: 67108864 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
            "nvls Simple");
  EXPECT_EQ(path_text(prefix + "AllReduce: 8 Bytes -> Algo NVLS_TREE proto SIMPLE"), "nvls_tree Simple");
}

TEST(NcclLog, NumbersOfOlderVersions) {
  const std::string prefix = kPrefix;
  EXPECT_EQ(path_text(prefix + "8 Bytes -> Algo 1 proto 0 time 7.800000"), "ring LL");
  EXPECT_EQ(path_text(prefix + "8192 Bytes -> Algo 0 proto 1 time 17.000000"), "tree LL128");
  EXPECT_EQ(path_text(prefix + "8192 Bytes -> Algo 4 proto 2 time 17.000000"), "nvls Simple");
}

TEST(NcclLog, OtherWordings) {
  EXPECT_EQ(path_text("AllReduce opCount 3 algorithm RING protocol LL"), "ring LL");
  EXPECT_EQ(path_text("algorithm: Tree, protocol: Simple."), "tree Simple");
}

TEST(NcclLog, SymmetricKernels) {
  EXPECT_EQ(path_text(std::string(kPrefix) +
                      "AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1"),
            "sym AGxLL_R");
  EXPECT_EQ(path_text("AllReduce [Symmetric]: 8 Bytes -> Kernel RSxLDMC_AGxSTMC nchannels 8 nthreads 512 nWorks 1"),
            "sym RSxLDMC_AGxSTMC");
}

TEST(NcclLog, TheFirstCallCounts) {
  EXPECT_EQ(path_text("something else\n8 Bytes -> Algo 1 proto 0 time 1\n64 Bytes -> Algo 0 proto 2 time 1\n"),
            "ring LL");
}

TEST(NcclLog, WhatIsNotUnderstoodIsUnknown) {
  const char* const texts[] = {
      "",
      "\n\n",
      "NCCL_ALGO set by environment to Ring",
      "NCCL_PROTO set by environment to LL",
      "Enabled NCCL Func/Proto/Algo Matrix:",
      "  Algorithm   |                            Tree                  |                            Ring",
      "  Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |",
      " Max NThreads |            512 |            640 |            512 |",
      "8 Bytes -> Algo 99 proto 0 time 7.8",
      "8 Bytes -> Algo RING",
      "8 Bytes -> Algo",
      "AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 2 datatype 7 op 0 root 0 comm 0x55 [nranks=2] stream "
      "0x56",
      "AllReduce [Symmetric]: 8 Bytes -> Kernel",
      "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
  };
  for (const char* text : texts) EXPECT_EQ(path_text(text), "") << text;
}

TEST(NcclLog, AnythingMayStandInALog) {
  std::string text;
  std::uint32_t state = 7;
  const char* const parts[] = {"Algo ",       "proto ", "RING", "->",   " ", "Kernel ",
                               "[Symmetric]", "\n",     ":",    "\xff", "0", "LL"};
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += parts[(state >> 16) % std::size(parts)];
    if (i % 40 == 0) {
      static_cast<void>(nccl_path(text));
      static_cast<void>(nccl_nvls(text));
      text.clear();
    }
  }
}

TEST(NcclLog, Nvls) {
  EXPECT_EQ(nccl_nvls("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"), true);
  EXPECT_EQ(nccl_nvls("x\nNVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)\n"), false);
  EXPECT_FALSE(nccl_nvls("Connected all rings"));
}

}  // namespace
}  // namespace ringbell::tools
