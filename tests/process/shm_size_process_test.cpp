// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A /dev/shm that is too small for a group: an error with needed and free bytes on every rank, never SIGBUS, nothing
// left. Each size in a mount namespace of its own; skipped where that is not allowed.
#include <filesystem>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

bool mount_small_shm(const char* size) {
  if (unshare(CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("t", "/dev/shm", "tmpfs", 0, size) == 0;
}

bool allowed() {
  RankProcesses probe(1, [](int) -> std::string { return mount_small_shm("size=1m") ? "" : "no"; });
  return probe.wait(0).code == 0;
}

TEST(CaseC22, AFullDevShmIsAnErrorWithNeededAndFreeBytesOnAllRanksAndNothingIsLeft) {
  if (!allowed()) GTEST_SKIP() << "no leave for mount namespaces";
  for (const char* size : {"size=4k", "size=64k", "size=1m", "size=5m"}) {
    SCOPED_TRACE(size);
    RankProcesses group(1, [&](int) -> std::string {
      if (!mount_small_shm(size)) return "no mount";
      const UniqueId id = unique_id_create();
      const auto texts = run_threads(8, [&](int rank) -> std::string {
        Config config = cpu_config();
        config.init_timeout_s = 5 * patience();
        try {
          const Communicator comm(id, rank, 8, config);
          return "joined";
        } catch (const Error& error) {
          return std::string(status_name(error.status())) + ": " + error.what();
        }
      });
      bool told = false;
      for (const std::string& text : texts) {
        if (text == "joined") return "a rank joined";
        told = told || (text.starts_with("system error") && text.find("/dev/shm") != std::string::npos &&
                        text.find("free") != std::string::npos && text.find("need") != std::string::npos);
      }
      if (!told) return "nobody tells needed and free bytes: " + texts[0] + " | " + texts[1];
      for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
        return "left behind: " + entry.path().string();
      return "";
    });
    const ProcessResult result = group.wait(0);
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.code, 0) << result.text;
  }
}

TEST(CaseC22, ThirtyTwoMebibytesAreEnoughForEightRanks) {
  if (!allowed()) GTEST_SKIP() << "no leave for mount namespaces";
  RankProcesses group(1, [&](int) -> std::string {
    if (!mount_small_shm("size=32m")) return "no mount";
    const auto texts = run_ranks(8, cpu_config(), [](Communicator& comm) {
      float value = 1;
      return wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kFloat32));
    });
    for (const std::string& text : texts) {
      if (!text.empty()) return text;
    }
    return "";
  });
  const ProcessResult result = group.wait(0);
  EXPECT_EQ(result.code, 0) << result.text;
}

}  // namespace
}  // namespace ringbell::test
