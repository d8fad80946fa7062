// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// The command line's contract: what scripts may rely on in tables, files, messages and exit codes. C32 of the case log.
#include "tests/support/program.hpp"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

namespace ringbell::test {
namespace {

constexpr std::size_t kColumns = 18;  // 5 + 4 + 4 + 5
constexpr const char* kSmall = "$RINGBELL perf --ranks 2 --device cpu -w 1 ";

std::vector<std::vector<std::string>> table_of(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(out)) {
    if (line.empty() || line[0] != '#') rows.push_back(words_of(line));
  }
  return rows;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("-0123456789.") == std::string::npos && text != "-" && text != ".";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() : folder_(make_folder()) {}
  ~TemporaryFolder() override { remove_folder(folder_); }
  const std::string folder_;
};

// --- C32: scripts that read the table

TEST(PerfTable, IsAllOfStandardOutputAndParsesInAnyLocaleWithTheDebugLogOn) {
  const Outcome run = run_program("RINGBELL_LOG=debug LC_ALL=de_DE.UTF-8 " + std::string(kSmall) + "-b 8 -e 4000 -f 8");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "ringbell")) << "debug log on, and nothing on standard error";
  const auto rows = table_of(run.out);
  ASSERT_EQ(rows.size(), 1U + 4U) << run.out;  // nop, 8, 64, 512, 4000 is not 4096: the end itself
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), kColumns) << run.out;
    for (const std::size_t number : {0U, 1U, 4U, 5U, 6U, 7U, 8U, 16U})
      EXPECT_TRUE(is_number(row[number])) << row[number];
  }
  EXPECT_EQ(rows.front()[13], "nop");
  EXPECT_EQ(rows.back()[0], "4000");
  EXPECT_EQ(rows.back()[1], "1000");
  EXPECT_EQ(rows.back()[2], "float32");
  EXPECT_EQ(rows.back()[8], "0");
  EXPECT_EQ(rows.back()[12], "0");
  EXPECT_TRUE(contains(run.out, "# method: time = one call alone, submit to complete"));
}

TEST(PerfTable, AwkReadsIt) {
  const Outcome run =
      run_program(std::string(kSmall) +
                  "--sizes 8,1K -d int32 | awk '!/^#/ { n[NF]++; s += $1 } END { for (c in n) print c, n[c], s }'");
  EXPECT_EQ(run.out, "18 3 1032\n") << run.err;
}

TEST(PerfTable, HeadEndsItQuietly) {
  const Outcome run = run_program(std::string(kSmall) + "-b 8 -e 64K -f 2 -n 200 | head -3");
  EXPECT_EQ(lines_of(run.out).size(), 3U);
  EXPECT_EQ(run.err, "");
}

TEST(PerfTable, AFullDiskIsAnError) {
  const Outcome run = run_program(std::string(kSmall) + "--sizes 8 > /dev/full");
  EXPECT_EQ(run.code, 3);
  EXPECT_TRUE(contains(run.err, "cannot write to standard output: No space left on device")) << run.err;
}

TEST(PerfTable, WhatWasNotCheckedIsADash) {
  const Outcome run = run_program(std::string(kSmall) + "--sizes 8 -c 0");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto rows = table_of(run.out);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1][8], "-");
  EXPECT_EQ(rows[1].size(), kColumns);
}

TEST(PerfTable, ShowsTheProtocolThatWasUsed) {
  for (const char* protocol : {"LL", "LL128", "Simple"}) {
    const Outcome run = run_program(std::string(kSmall) + "--sizes 8 --algo ring --proto " + protocol);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(table_of(run.out).back()[13], "ring");
    EXPECT_EQ(table_of(run.out).back()[14], protocol);
  }
}

TEST(PerfTable, ASizeBelowOneElementIsSkippedWithANote) {
  const Outcome run = run_program(std::string(kSmall) + "-b 2 -e 8 -f 2 -d float64,float16");
  ASSERT_EQ(run.code, 0) << run.err;
  std::map<std::string, int> rows;
  for (const auto& row : table_of(run.out)) ++rows[row[2]];
  EXPECT_EQ(rows["float64"], 1);
  EXPECT_EQ(rows["float16"], 3);
  EXPECT_TRUE(contains(run.err, "2 bytes are below one element of float64")) << run.err;
  EXPECT_TRUE(contains(run.err, "4 bytes are below one element of float64")) << run.err;
}

using PerfJson = TemporaryFolder;

TEST_F(PerfJson, HasSchemaOneAndTheSentBytesOfItsAlgorithm) {
  for (const int ranks : {1, 2, 3, 5}) {
    const std::string path = folder_ + "/" + std::to_string(ranks) + ".json";
    const Outcome run = run_program(
        "LC_ALL=de_DE.UTF-8 $RINGBELL perf --device cpu -n 2 -w 1 --sizes 8,1000 -d float32,int8 --hash --ranks " +
        std::to_string(ranks) + " -J " + path);
    ASSERT_EQ(run.code, 0) << run.err;
    const auto document = nlohmann::json::parse(file_text(path));
    EXPECT_EQ(document.at("schema"), 1);
    for (const char* key : {"machine", "commit", "dirty", "version", "command", "env", "method"}) {
      EXPECT_TRUE(document.contains(key)) << key;
    }
    EXPECT_FALSE(contains(file_text(path), "RINGBELL_SESSION"));
    EXPECT_FALSE(contains(document.at("command").get<std::string>(), "meeting"));
    ASSERT_EQ(document.at("rows").size(), 1U + 2 * 2 * 2);
    for (const auto& row : document.at("rows")) {
      EXPECT_EQ(row.at("ranks"), ranks);
      if (row.at("algo") == "nop") {
        EXPECT_TRUE(row.at("wrong").is_null());
        continue;
      }
      EXPECT_EQ(row.at("wrong"), 0);
      const long times = row.at("algo") == "ring" ? 2 : ranks;
      EXPECT_EQ(row.at("sent_bytes").get<long>(), times * (ranks - 1) * row.at("bytes").get<long>());
      EXPECT_EQ(row.at("hash").get<std::string>().size(), 16U);
      EXPECT_LE(row.at("p10_us"), row.at("p50_us"));
    }
  }
}

TEST_F(PerfJson, NotMeasuredIsNull) {
  const std::string path = folder_ + "/a.json";
  ASSERT_EQ(run_program(std::string(kSmall) + "--sizes 8 -c 0 -J " + path).code, 0);
  const auto row = nlohmann::json::parse(file_text(path)).at("rows").at(1);
  EXPECT_TRUE(row.at("wrong").is_null());
  EXPECT_TRUE(row.at("hash").is_null());
}

TEST_F(PerfJson, ARunThatFailsHalfWayLeavesTheFileAsItWas) {
  for (const bool existed : {false, true}) {
    const std::string path = folder_ + "/half.json";
    if (existed) std::ofstream(path) << "{\"old\": true}";
    Running run("exec $RINGBELL perf --ranks 3 --device cpu -b 8 -e 64M -f 2 -n 100000 -J " + path);
    ASSERT_TRUE(eventually([&] { return children_of(run.pid()).size() == 3; }));
    sleep_seconds(0.5);
    kill(children_of(run.pid()).at(1), SIGKILL);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "rank 1 was ended by signal 9")) << outcome.err;
    EXPECT_EQ(file_text(path), existed ? "{\"old\": true}" : "");
    EXPECT_EQ(run_program("ls " + folder_).out, existed ? "half.json\n" : "");
  }
}

TEST_F(PerfJson, AFileThatCannotBeWrittenIsToldBeforeMeasuring) {
  const Outcome run = run_program(std::string(kSmall) + "--sizes 8 -J " + folder_ + "/none/a.json");
  EXPECT_EQ(run.code, 3);
  EXPECT_TRUE(contains(run.err, "/none/a.json")) << run.err;
  EXPECT_EQ(run.out, "");
}

// --- values

TEST(PerfCheck, AFlippedBitInFlightIsWrongData) {
  for (const char* protocol : {"LL", "LL128", "Simple"}) {
    const Outcome run =
        run_program("RINGBELL_FAULT=flip:rank=1:publish=50 $RINGBELL perf --ranks 2 --device cpu --sizes 4K --proto " +
                    std::string(protocol));
    EXPECT_NE(run.code, 0) << protocol << "\n" << run.out;
    EXPECT_TRUE(run.code == 1 ? contains(run.out, "FAILED") : run.code == 2 || run.code == 4)
        << run.code << run.out << run.err;
  }
}

TEST(PerfCheck, HashesDependOnTheSeedAndNotOnTheProtocol) {
  std::map<std::string, std::string> hashes;
  for (const char* options : {"--proto LL", "--proto LL128", "--proto Simple", "--proto LL --seed 2"}) {
    const Outcome run = run_program(std::string(kSmall) + "--sizes 5000 -d bfloat16 --hash " + options);
    ASSERT_EQ(run.code, 0) << run.err;
    hashes[options] = table_of(run.out).back().at(kColumns);
  }
  EXPECT_EQ(hashes["--proto LL"], hashes["--proto LL128"]);
  EXPECT_EQ(hashes["--proto LL"], hashes["--proto Simple"]);
  EXPECT_NE(hashes["--proto LL"], hashes["--proto LL --seed 2"]);
}

TEST(PerfLaunch, WorksUnderALauncher) {
  const Outcome run = run_program("$RINGBELL run -n 3 --device cpu -- $RINGBELL perf -n 2 --sizes 8,4K");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(table_of(run.out).size(), 3U) << run.out;
  EXPECT_TRUE(contains(run.out, "3 ranks on cpu"));
}

// --- messages and exit codes

TEST_F(TemporaryFolder, ATimeOutIsToldOnceOnStandardErrorAlsoWhenTheLogGoesToAFile) {
  const std::string lost =
      "RINGBELL_FAULT=drop:rank=1:publish=50 $RINGBELL perf --ranks 2 --device cpu --sizes 4K --proto LL --timeout 0.5";
  for (const std::string& log : {std::string(), "RINGBELL_LOG_FILE=" + folder_ + "/log.%r "}) {
    const Outcome run = run_program(log + lost, 30);
    EXPECT_EQ(run.code, 4) << run.err;
    // A sentence for each rank that comes to speak, from "call" on: never the same one twice.
    std::multiset<std::string> sentences;
    for (const std::string& line : lines_of(run.err)) {
      if (contains(line, "waited in vain")) sentences.insert(line.substr(line.find("call ")));
    }
    EXPECT_GE(sentences.size(), 1U) << run.err;
    for (const std::string& sentence : sentences) {
      EXPECT_EQ(sentences.count(sentence), 1U) << run.err;
      EXPECT_TRUE(contains(sentence, " for 0.5 s")) << sentence;
    }
    EXPECT_TRUE(contains(run.err, "RINGBELL_TIMEOUT_S / Config::timeout_s")) << run.err;
  }
}

struct BadLine {
  const char* line;
  int code;
  const char* part;  ///< of the message
};

TEST(CommandLine, BadValuesAreNamedWithTheRemedy) {
  const BadLine lines[] = {
      {"perf --proto LL129", 64, "--proto 'LL129': one of auto, LL, LL128, Simple"},
      {"perf --proto ' ll'", 64, "one of auto, LL"},
      {"perf --algo tree", 64, "--algo 'tree': one of auto, ring"},
      {"perf --issue bell", 64, "--issue 'bell': one of host"},
      {"perf --device gpu", 64, "--device 'gpu': one of auto, cpu, cuda"},
      {"perf -d float31", 64, "-d 'float31': one of float32"},
      {"perf -o mean", 64, "-o 'mean': one of sum"},
      {"perf -b 1 -e 2 -d float32", 64, "end size 2 is below one element of float32 (4 bytes)"},
      {"perf --sizes 1,4 -d float64", 64, "end size 4 is below one element of float64"},
      {"perf -b 16 -e 8", 64, "-e 8 is below -b 16"},
      {"perf -b 8 -e 64 -f 1", 64, "-f '1'"},
      {"perf -f 2 -i 8", 64, "exclude each other"},
      {"perf --sizes 8 -e 64", 64, "exclude each other"},
      {"perf -e 64T", 64, "-e '64T'"},
      {"perf -n 0", 64, "-n '0'"},
      {"perf -c 2", 64, "-c '2': one of 0, 1"},
      {"perf -G x", 64, "-G 'x'"},
      {"perf --ranks 0", 64, "from 1 to 8"},
      {"perf --ranks 9", 64, "from 1 to 8"},
      {"perf --chunk 1000", 64, "a multiple of 1920"},
      {"perf -J ''", 64, "-J '': the name of a file"},
      {"perf --timeout=-1", 64, "--timeout '-1'"},
      {"perf --timeout abc", 64, "--timeout 'abc'"},
      {"perf --channels 2", 64, "--channels is not in this version"},
      {"perf --against nccl,mpl", 64, "--against 'mpl': one of nccl, nccl-sym, nccl-ring-ll"},
      {"perf --against mpi,launch,mpi", 64, "mpi is there twice"},
      {"perf --against ''", 64, "--against ''"},
      {"perf --against mpi --rounds 0", 64, "--rounds '0': a whole number from 1"},
      {"perf --l2 hot", 64, "--l2 'hot': one of warm, cold, flush"},
      {"perf --bogus", 64, "--bogus"},
      {"perf --device cpu --gpus 0", 64, "--gpus 0 and --device cpu"},
      {"run -- true", 64, "-n is missing"},
      {"run -n 2", 64, "put it after --"},
      {"run -n 9 -- true", 64, "from 1 to 8"},
      {"run -n 2 --device tpu -- true", 64, "one of auto, cpu, cuda"},
      {"run -n 2 -- ./no-such-program", 3, "cannot start './no-such-program': No such file or directory"},
      {"", 64, "no command"},
      {"dance", 64, "dance"},
  };
  for (const BadLine& bad : lines) {
    const Outcome run = run_program(std::string("$RINGBELL ") + bad.line, 20);
    EXPECT_EQ(run.code, bad.code) << bad.line;
    EXPECT_TRUE(contains(run.err, bad.part)) << bad.line << "\n" << run.err;
    EXPECT_EQ(lines_of(run.err).size(), 1U) << run.err;
    EXPECT_EQ(run.out, "") << bad.line;
  }
}

TEST(CommandLine, TheEnvironmentIsCheckedToo) {
  const BadLine lines[] = {
      {"RANK=0 $RINGBELL perf --sizes 8", 3, "RANK is set but WORLD_SIZE is not"},
      {"RINGBELL_RANK=2 RINGBELL_WORLD=2 $RINGBELL perf --sizes 8", 3, "RINGBELL_RANK=2 with RINGBELL_WORLD=2"},
      {"RINGBELL_PROTO=LL129 $RINGBELL perf --device cpu --sizes 8", 3, "RINGBELL_PROTO='LL129'"},
      {"RINGBELL_PROTO= $RINGBELL perf --device cpu --sizes 8", 3, "RINGBELL_PROTO is set but empty"},
      {"RINGBELL_RANK=0 RINGBELL_WORLD=2 $RINGBELL perf --ranks 3", 64, "--ranks 3, but a launcher started 2"},
      {"RINGBELL_RANK=0 RINGBELL_WORLD=2 $RINGBELL perf --against launch", 64, "--against under a launcher"},
      {"RINGBELL_RANK=0 RINGBELL_WORLD=2 $RINGBELL perf --device cpu --sizes 8", 64,
       "give all ranks of the job the same RINGBELL_SESSION"},
      {"CUDA_VISIBLE_DEVICES= $RINGBELL perf --device cuda --sizes 8", 3, "--device cuda"},
  };
  for (const BadLine& bad : lines) {
    const Outcome run = run_program(bad.line, 20);
    EXPECT_EQ(run.code, bad.code) << bad.line;
    EXPECT_TRUE(contains(run.err, bad.part)) << bad.line << "\n" << run.err;
    EXPECT_EQ(run.out, "") << bad.line;
  }
}

TEST(CommandLine, EveryCommandHasHelpWithAnExample) {
  for (const char* command : {"", "run", "perf", "env"}) {
    const Outcome run = run_program(std::string("$RINGBELL ") + command + " --help");
    EXPECT_EQ(run.code, 0) << command;
    EXPECT_TRUE(contains(run.out, "example: ")) << command << "\n" << run.out;
    EXPECT_EQ(run.err, "") << command;
  }
}

TEST(CommandLine, VersionTellsCommitCudaAndArchitectures) {
  const Outcome run = run_program("$RINGBELL --version");
  EXPECT_EQ(run.code, 0);
  for (const char* part : {"ringbell ", ", commit ", ", CUDA ", ", architectures "})
    EXPECT_TRUE(contains(run.out, part)) << part;
  EXPECT_EQ(lines_of(run.out).size(), 1U);
}

TEST(CommandLine, EnvListsVariablesWithTheirValues) {
  const Outcome run = run_program("RINGBELL_PROTO=LL128 $RINGBELL env");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "RINGBELL_TIMEOUT_S"));
  EXPECT_TRUE(contains(run.out, "'LL128'"));
  EXPECT_EQ(run_program("RINGBELL_PROTO=LL129 $RINGBELL env").code, 3);
  EXPECT_EQ(run_program("RINGBELL_SLOT_BYTES=3840 $RINGBELL env").code, 0);
  EXPECT_EQ(run_program("RINGBELL_SLOT_BYTES=4096 $RINGBELL env").code, 3) << "set-up refuses it";
  EXPECT_EQ(run_program("$RINGBELL env > /dev/full").code, 3);
}

}  // namespace
}  // namespace ringbell::test
