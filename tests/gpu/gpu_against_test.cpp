// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=300
//
// perf --against NCCL on two GPUs: rows with right results, the version, and the algorithm that was forced.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/session.hpp"
#include "tests/support/program.hpp"

namespace ringbell::test {
namespace {

class GpuAgainst : public testing::Test {
 protected:
  void SetUp() override {
    if (session::cuda_device_count() < 2) GTEST_SKIP() << "no two GPUs here: NCCL refuses two ranks on one";
    if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == nullptr) GTEST_SKIP() << "no NCCL here: " << dlerror();
  }
  GpuAgainst() : folder_(make_folder()) {}
  ~GpuAgainst() override { remove_folder(folder_); }
  nlohmann::json rows_of(const std::string& options) {
    const Outcome run = run_program(
        "$RINGBELL perf --device cuda --ranks 2 --sizes 8,8K,1M -n 20 -J " + folder_ + "/a.json " + options, 280);
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    if (run.code != 0) return nlohmann::json::array();
    return nlohmann::json::parse(file_text(folder_ + "/a.json")).at("rows");
  }
  const std::string folder_;
};

TEST_F(GpuAgainst, NcclIsRightAndTakesTheAlgorithmThatItIsForcedTo) {
  int nccl_rows = 0;
  const nlohmann::json rows = rows_of("--against nccl,nccl-ring-ll,nccl-tree-simple -d float32,bfloat16");
  for (const auto& row : rows) {
    const std::string peer = row.at("peer");
    if (peer == "ringbell") continue;
    ++nccl_rows;
    EXPECT_EQ(row.at("wrong"), 0) << row;
    EXPECT_EQ(row.at("rounds"), 5);
    EXPECT_GT(row.at("ratio"), 0);
    EXPECT_EQ(row.at("peer_version").get<std::string>().substr(0, 5), "NCCL ");
    EXPECT_NE(row.at("algo"), "-") << "this version's log is not understood: " << row;
    if (peer == "nccl-ring-ll") {
      EXPECT_EQ(row.at("algo"), "ring") << row;
      EXPECT_EQ(row.at("proto"), "LL") << row;
      EXPECT_EQ(row.at("peer_env").at("NCCL_ALGO"), "Ring");
    } else if (peer == "nccl-tree-simple") {
      EXPECT_EQ(row.at("algo"), "tree") << row;
      EXPECT_EQ(row.at("proto"), "Simple") << row;
    }
  }
  EXPECT_EQ(nccl_rows, 3 * 3 * 2 * 2);
}

TEST_F(GpuAgainst, ColdAndFlushedBuffersAreRightToo) {
  for (const std::string l2 : {"cold", "flush"}) {
    for (const auto& row : rows_of("--against nccl --rounds 1 --l2 " + l2)) {
      EXPECT_TRUE(row.at("algo") == "nop" || row.at("wrong") == 0) << row;
    }
  }
}

TEST_F(GpuAgainst, SymmetricWindowsAreRightOrNamedAsImpossible) {
  const Outcome run =
      run_program("$RINGBELL perf --device cuda --ranks 2 --sizes 8,64K --against nccl-sym --rounds 1", 280);
  EXPECT_TRUE(run.code == 0 || run.code == 3) << run.out << run.err;
  EXPECT_EQ(run.code == 3, run.err.find("ringbell perf: nccl-sym: ") != std::string::npos) << run.err;
}

TEST_F(GpuAgainst, APeerThatCannotRunLeavesOurRows) {
  const Outcome run = run_program("touch " + folder_ + "/libnccl.so.2 && LD_LIBRARY_PATH=" + folder_ +
                                      " $RINGBELL perf --device cuda --ranks 2 --sizes 8 --against nccl --rounds 1",
                                  280);
  EXPECT_EQ(run.code, 3) << run.out << run.err;
  EXPECT_NE(run.err.find("NCCL cannot be opened: "), std::string::npos) << run.err;
  EXPECT_NE(run.out.find("# wrong elements: 0 OK"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace ringbell::test
