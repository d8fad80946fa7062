// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// perf --against: peers in processes of their own, whose failures cost their own rows and nothing else.
#include <algorithm>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "tests/support/program.hpp"

namespace ringbell::test {
namespace {

constexpr std::size_t kColumns = 19;  // one more than without --against
constexpr const char* kSmall = "$RINGBELL perf --device cpu --ranks 2 -w 1 ";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool has_mpi() {
  static const bool has = run_program("test -x \"$(dirname $RINGBELL)/ringbell-perf-mpi\"").code == 0;
  return has;
}

/// Peers' names of a table's rows, with how often each is there.
std::map<std::string, int> peers_of(const std::string& out) {
  std::map<std::string, int> peers;
  for (const std::string& line : lines_of(out)) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> words = words_of(line);
    EXPECT_EQ(words.size(), kColumns) << line;
    if (words.size() == kColumns && words[13] != "nop") ++peers[words[17]];
  }
  return peers;
}

class Against : public testing::Test {
 protected:
  Against() : folder_(make_folder()) {}
  ~Against() override { remove_folder(folder_); }
  nlohmann::json document() const { return nlohmann::json::parse(file_text(folder_ + "/a.json")); }
  const std::string folder_;
};

void expect_peer_row(const nlohmann::json& row) {
  EXPECT_EQ(row.at("rounds"), 5) << row;
  EXPECT_EQ(row.at("wrong"), 0) << row;
  EXPECT_EQ(row.at("issue"), "host");
  EXPECT_GT(row.at("ratio"), 0) << row;
  EXPECT_LE(row.at("ratio_min"), row.at("ratio")) << row;
  EXPECT_GE(row.at("ratio_max"), row.at("ratio")) << row;
  EXPECT_TRUE(row.at("peer_env").is_object());
  EXPECT_TRUE(row.at("nvls").is_null());
  EXPECT_GT(row.at("p50_us"), 0);
  EXPECT_LE(row.at("p50_us"), row.at("p99_us"));
}

TEST_F(Against, LaunchAndMpiHaveRowsAfterOurs) {
  if (!has_mpi()) GTEST_SKIP() << "ringbell-perf-mpi was not built";
  const Outcome run =
      run_program(std::string(kSmall) + "--against mpi,launch --sizes 8,1K,64K -n 5 -J " + folder_ + "/a.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(peers_of(run.out), (std::map<std::string, int>{{"ringbell", 3}, {"mpi", 3}, {"launch", 3}})) << run.out;
  EXPECT_TRUE(contains(run.out, "# peer mpi: Open MPI v")) << run.out;
  EXPECT_TRUE(contains(run.out, "# peer launch: ringbell ")) << run.out;
  EXPECT_TRUE(contains(run.out, "in each of 5 rounds; peers in processes of their own take turns with ours"));
  std::vector<std::string> order;
  const nlohmann::json results = document();
  for (const auto& row : results.at("rows")) {
    if (!row.at("in_place").get<bool>() && row.at("algo") != "nop") order.push_back(row.at("peer"));
    if (row.at("peer") != "ringbell") expect_peer_row(row);
    EXPECT_EQ(row.contains("ratio"), row.at("peer") != "ringbell");
    if (row.at("peer") == "launch") {
      EXPECT_EQ(row.at("peer_env").at("RINGBELL_RESIDENT"), "0");
    } else if (row.at("peer") == "mpi") {
      EXPECT_TRUE(contains(row.at("peer_version"), "Open MPI"));
    }
  }
  EXPECT_EQ(results.at("rows").size(), 1U + 3 * 3 * 2);
  EXPECT_EQ(order, (std::vector<std::string>{"ringbell", "mpi", "launch", "ringbell", "mpi", "launch", "ringbell",
                                             "mpi", "launch"}));
  EXPECT_FALSE(contains(results.at("command"), "seat"));
}

TEST_F(Against, WithoutMpiTheRestRuns) {
  // The program alone, in a folder where no ringbell-perf-mpi is beside it.
  const Outcome run =
      run_program("cp -L $RINGBELL " + folder_ + "/ringbell && " + folder_ +
                  "/ringbell perf --device cpu --ranks 2 --against mpi,launch --sizes 8 -n 5 --rounds 1");
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_TRUE(contains(run.err,
                       "ringbell perf: mpi: not built in (Open MPI was not found at build time): apt-get "
                       "install libopenmpi-dev openmpi-bin and build again"))
      << run.err;
  EXPECT_EQ(peers_of(run.out), (std::map<std::string, int>{{"ringbell", 1}, {"launch", 1}}));
}

TEST_F(Against, NcclWithoutAGpuIsOneLineAndTheOthersRowsAreThere) {
  const Outcome run =
      run_program(std::string(kSmall) + "--against nccl,launch --sizes 8,1K -n 5 --rounds 2 -J " + folder_ + "/a.json");
  EXPECT_EQ(run.code, 3) << run.err;
  ASSERT_EQ(lines_of(run.err).size(), 1U) << run.err;
  EXPECT_TRUE(contains(run.err, "ringbell perf: nccl: NCCL needs GPUs")) << run.err;
  EXPECT_EQ(peers_of(run.out), (std::map<std::string, int>{{"ringbell", 2}, {"launch", 2}}));
  EXPECT_EQ(document().at("rows").size(), 1U + 2 * 2 * 2);
}

TEST_F(Against, MpiHasNotEveryTypeAndOperation) {
  if (!has_mpi()) GTEST_SKIP() << "ringbell-perf-mpi was not built";
  const Outcome run = run_program(
      std::string(kSmall) + "--against mpi --sizes 8,64 -d int64,bfloat16,float64 -o sum,avg,max -n 2 --rounds 1");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(peers_of(run.out), (std::map<std::string, int>{{"ringbell", 18}, {"mpi", 8}})) << run.out;
  EXPECT_EQ(lines_of(run.err).size(), 2U) << run.err;
  EXPECT_TRUE(contains(run.err, "ringbell perf: mpi: MPI has no avg: these rows are left out")) << run.err;
  EXPECT_TRUE(contains(run.err, "ringbell perf: mpi: MPI has no bfloat16: these rows are left out")) << run.err;
}

TEST_F(Against, MpiIsRightInEveryTypeThatItHasAndSumsOfBytesAreNotJudged) {
  if (!has_mpi()) GTEST_SKIP() << "ringbell-perf-mpi was not built";
  const Outcome run = run_program(
      "$RINGBELL perf --device cpu --ranks 3 -w 0 -n 1 --rounds 1 --against mpi --sizes 4K "
      "-d float32,float64,int8,uint8,int32,uint32,int64,uint64 -o sum,prod,min,max -J " +
      folder_ + "/a.json");
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  int judged = 0;
  const nlohmann::json results = document();
  for (const auto& row : results.at("rows")) {
    if (row.at("peer") != "mpi") continue;
    const bool bytes = row.at("dtype") == "int8" || row.at("dtype") == "uint8";
    EXPECT_EQ(row.at("wrong").is_null(), bytes && row.at("op") == "sum") << row;
    if (row.at("wrong") == 0) ++judged;
  }
  EXPECT_EQ(judged, (8 * 4 - 2) * 2);
}

/// Processes of the run `owner` whose arguments hold `part`.
std::vector<pid_t> processes_of(pid_t owner, const std::string& program, const std::string& variable) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string exe = std::filesystem::read_symlink(entry.path() / "exe", error).filename().string();
    if (error || exe != program) continue;
    const std::string arguments = file_text("/proc/" + name + "/cmdline");
    const std::string seat = std::string(1, '\0') + std::to_string(owner + 1) + ",";
    const bool child = contains(file_text("/proc/" + name + "/status"), "PPid:\t" + std::to_string(owner) + "\n");
    if (!child && !contains(arguments, seat)) continue;
    if (!variable.empty() && !contains(file_text("/proc/" + name + "/environ"), variable)) continue;
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

/// A long run, one rank of a peer killed when the first rows are there.
Outcome run_and_kill(const std::string& folder, const std::string& peers, const std::string& program,
                     const std::string& variable) {
  const std::string out = folder + "/out";
  Running run("exec $RINGBELL perf --device cpu --ranks 2 -w 1 --sizes 8,64,512 -n 30 --rounds 20 --against " + peers +
              " > " + out);
  EXPECT_TRUE(eventually([&] { return peers_of(file_text(out))["ringbell"] > 0; }, 30)) << file_text(out);
  const std::vector<pid_t> ranks = processes_of(run.pid(), program, variable);
  EXPECT_EQ(ranks.size(), 2U);
  if (!ranks.empty()) kill(ranks.back(), SIGKILL);
  Outcome outcome = run.wait();
  outcome.out = file_text(out);
  return outcome;
}

TEST_F(Against, AKilledRankOfAPeerLeavesTheRest) {
  const Outcome run = run_and_kill(folder_, has_mpi() ? "launch,mpi" : "launch", "ringbell", "RINGBELL_RESIDENT=0");
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_TRUE(contains(run.err, " was ended by signal 9: its rows from here on are left out")) << run.err;
  EXPECT_EQ(lines_of(run.err).size(), 1U) << run.err;
  auto peers = peers_of(run.out);
  EXPECT_EQ(peers["ringbell"], 3);
  EXPECT_EQ(peers["mpi"], has_mpi() ? 3 : 0);
  EXPECT_LT(peers["launch"], 3);
}

TEST_F(Against, AKilledRankOfMpiLeavesTheRest) {
  if (!has_mpi()) GTEST_SKIP() << "ringbell-perf-mpi was not built";
  const Outcome run = run_and_kill(folder_, "mpi,launch", "ringbell-perf-mpi", "");
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_TRUE(contains(run.err, "ringbell perf: mpi: mpirun exited with code 137")) << run.err;
  auto peers = peers_of(run.out);
  EXPECT_EQ(peers["ringbell"], 3);
  EXPECT_EQ(peers["launch"], 3);
  EXPECT_LT(peers["mpi"], 3);
}

TEST_F(Against, NothingIsLeftWhenPerfItselfIsKilled) {
  const std::string peers = has_mpi() ? "launch,mpi" : "launch";
  Running run("exec $RINGBELL perf --device cpu --ranks 2 --sizes 8 -n 100000 --rounds 50 --against " + peers);
  const pid_t perf = run.pid();
  std::vector<pid_t> all;
  const auto started = [&] {
    all = processes_of(perf, "ringbell", "");
    const std::vector<pid_t> mpi = processes_of(perf, "ringbell-perf-mpi", "");
    all.insert(all.end(), mpi.begin(), mpi.end());
    return all.size() == (has_mpi() ? 6U : 4U);
  };
  ASSERT_TRUE(eventually(started, 20)) << all.size();
  sleep_seconds(0.3);
  kill(perf, SIGKILL);
  run.wait();
  EXPECT_TRUE(eventually([&] { return std::none_of(all.begin(), all.end(), is_alive); }));
}

TEST_F(Against, BuffersInAndOutOfTheCacheAreCheckedAndRecorded) {
  for (const std::string l2 : {"warm", "cold", "flush"}) {
    const Outcome run = run_program(std::string(kSmall) + "--sizes 8,1M -n 1 --against launch --rounds 1 --tail --l2 " +
                                    l2 + " -J " + folder_ + "/a.json");
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(contains(run.out, "out of the cache"), l2 != "warm") << run.out;
    EXPECT_TRUE(contains(run.out, "# tail of the times")) << run.out;
    const nlohmann::json results = document();
    ASSERT_EQ(results.at("rows").size(), 1U + 2 * 2 * 2);
    for (const auto& row : results.at("rows")) {
      EXPECT_EQ(row.at("l2"), l2);
      EXPECT_TRUE(row.at("algo") == "nop" || row.at("wrong") == 0) << row;
    }
  }
}

}  // namespace
}  // namespace ringbell::test
