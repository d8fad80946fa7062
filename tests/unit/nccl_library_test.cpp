// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL's values as documented, and what is said when the library is not there, too old, or something else.
#include "tools/nccl_library.hpp"

#include <set>

#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {
namespace {

std::string refusal_of(const char* file) {
  try {
    static_cast<void>(open_nccl(file, kNcclOldest));
  } catch (const ExitError& error) {
    EXPECT_EQ(error.code(), kExitEnvironment);
    return error.what();
  }
  return "";
}

TEST(NcclLibrary, AMissingOneIsNamedWithTheRemedy) {
  const std::string text = refusal_of("libringbell-no-such-nccl.so.2");
  EXPECT_NE(text.find("libringbell-no-such-nccl.so.2"), std::string::npos) << text;
  EXPECT_NE(text.find("install libnccl2 or name its folder in LD_LIBRARY_PATH"), std::string::npos) << text;
}

TEST(NcclLibrary, AnotherLibraryIsNotNccl) {
  EXPECT_EQ(refusal_of("libm.so.6"), "libm.so.6 has no ncclGetVersion: is it NCCL?");
}

TEST(NcclLibrary, VersionsInBothSchemes) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21805), "2.18.5");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

TEST(NcclLibrary, TooOldIsSaidWithBothVersions) {
  EXPECT_EQ(nccl_version_refusal(21705, kNcclOldest), "libnccl.so.2 is NCCL 2.17.5, 2.18.0 or newer is needed");
  EXPECT_EQ(nccl_version_refusal(22600, kNcclWithWindows), "libnccl.so.2 is NCCL 2.26.0, 2.27.0 or newer is needed");
  EXPECT_EQ(nccl_version_refusal(2804, kNcclOldest), "libnccl.so.2 is NCCL 2.8.4, 2.18.0 or newer is needed");
  EXPECT_EQ(nccl_version_refusal(22809, kNcclWithWindows), "");
}

TEST(NcclLibrary, EveryTypeAndOperationHasItsOwnNumber) {
  std::set<int> types;
  for (int i = 0; i < kDTypeCount; ++i) types.insert(nccl_type(static_cast<DType>(i)));
  EXPECT_EQ(types.size(), static_cast<std::size_t>(kDTypeCount));
  EXPECT_EQ(types.count(-1), 0U);
  std::set<int> ops;
  for (int i = 0; i < kReduceOpCount; ++i) ops.insert(nccl_op(static_cast<ReduceOp>(i)));
  EXPECT_EQ(ops, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(nccl_type(DType::kFloat32), 7);
  EXPECT_EQ(nccl_type(DType::kBFloat16), 9);
  EXPECT_EQ(nccl_op(ReduceOp::kMin), 3);
}

TEST(NcclLibrary, AnAverageOfFloatsIsComparedOnlyWhereItsScaleIsExact) {
  EXPECT_TRUE(nccl_is_exact(DType::kFloat32, ReduceOp::kAvg, 4));
  EXPECT_FALSE(nccl_is_exact(DType::kFloat32, ReduceOp::kAvg, 3));
  EXPECT_TRUE(nccl_is_exact(DType::kInt32, ReduceOp::kAvg, 3));
  EXPECT_TRUE(nccl_is_exact(DType::kBFloat16, ReduceOp::kSum, 3));
}

TEST(NcclLibrary, TheIdIsPassedAsOneHundredAndTwentyEightBytes) { EXPECT_EQ(sizeof(NcclId), 128U); }

}  // namespace
}  // namespace ringbell::tools
