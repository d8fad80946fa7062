// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// perf --issue: rows of every way, checked, and what is refused.
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.hpp"

namespace ringbell::test {
namespace {

const std::string kSmall = "$RINGBELL perf --device cpu --ranks 2 -w 1 -n 3 ";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class IssueWays : public testing::Test {
 protected:
  IssueWays() : folder_(make_folder()) {}
  ~IssueWays() override { remove_folder(folder_); }
  nlohmann::json document() const { return nlohmann::json::parse(file_text(folder_ + "/a.json")); }
  const std::string folder_;
};

/// "stream", "chain-graph": how often, out of place.
std::map<std::string, int> ways_of(const nlohmann::json& document) {
  std::map<std::string, int> ways;
  for (const auto& row : document.at("rows")) {
    if (row.at("algo") == "nop" || row.at("in_place").get<bool>()) continue;
    std::string way = row.at("issue");
    if (row.contains("chain")) way.append("-").append(row.at("chain").get<std::string>());
    ++ways[way];
  }
  return ways;
}

TEST_F(IssueWays, EveryWayHasItsRowsAndNoWrongElement) {
  const Outcome run =
      run_program(kSmall + "--issue host,after,stream,graph,chain --sizes 8,2000 -J " + folder_ + "/a.json");
  ASSERT_EQ(run.code, 0) << run.err << run.out;
  EXPECT_EQ(run.err, "");
  EXPECT_TRUE(contains(run.out, "# wrong elements: 0 OK")) << run.out;
  const nlohmann::json results = document();
  EXPECT_EQ(ways_of(results), (std::map<std::string, int>{{"host", 2},
                                                          {"after", 2},
                                                          {"stream", 2},
                                                          {"graph", 2},
                                                          {"chain-host", 2},
                                                          {"chain-after", 2},
                                                          {"chain-stream", 2},
                                                          {"chain-graph", 2}}));
  for (const auto& row : results.at("rows")) {
    if (row.at("algo") == "nop") continue;
    const bool single = row.at("issue") == "host" || row.at("issue") == "after";
    EXPECT_EQ(row.at("wrong"), 0) << row;
    EXPECT_EQ(row.contains("calls_per_sample"), !single) << row;
    EXPECT_EQ(row.contains("sent_bytes"), single) << row;
    EXPECT_EQ(row.at("busbw_gbps").is_null(), row.at("issue") == "graph" || row.at("issue") == "chain") << row;
    EXPECT_GT(row.at("p50_us"), 0) << row;
  }
  EXPECT_TRUE(contains(results.at("method"), "back to back")) << results.at("method");
}

TEST_F(IssueWays, AFlippedBitOfALaunchedCallIsFound) {
  // A call of 8 bytes is a line of each rank; checked is the last call of a sample of 64, here the fourth's. Before
  // its samples the graph way makes one call.
  const std::map<std::string, int> kLastCalls = {{"stream", 256}, {"graph", 257}, {"chain", 256}};
  for (const auto& [way, publish] : kLastCalls) {
    const Outcome run = run_program("RINGBELL_FAULT=flip:rank=1:publish=" + std::to_string(publish) + " " + kSmall +
                                    "--sizes 8 --issue " + way);
    EXPECT_EQ(run.code, 1) << way << run.err << run.out;
    EXPECT_TRUE(contains(run.out, "FAILED")) << way << run.out;
  }
}

TEST_F(IssueWays, PeersAreDrivenInTheSameWayOrSayThatTheyCannot) {
  const Outcome run =
      run_program(kSmall + "--against mpi,launch --rounds 1 --issue stream,chain --sizes 8 -J " + folder_ + "/a.json");
  const nlohmann::json results = document();
  std::map<std::string, int> rows;
  for (const auto& row : results.at("rows")) ++rows[row.at("peer")];
  EXPECT_EQ(rows.at("launch"), 5) << run.out;
  EXPECT_EQ(rows.count("mpi"), 0u) << run.out;
  if (!contains(run.err, "not built in")) {
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_TRUE(contains(run.err, "mpi: its calls are not on streams: these rows are left out")) << run.err;
  }
}

TEST_F(IssueWays, GraphLaunchesOfNcclTestsAreSamplesOfTheGraphWay) {
  const Outcome run =
      run_program("$RINGBELL perf --device cpu --ranks 2 -w 1 -G 4 --sizes 8 -J " + folder_ + "/a.json");
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json results = document();
  EXPECT_EQ(ways_of(results), (std::map<std::string, int>{{"graph", 1}}));
  EXPECT_EQ(results.at("rows").back().at("iters"), 4);
}

TEST_F(IssueWays, ARateIsKeptAndAHeldWorkerIsLaunchedOnce) {
  const std::string command =
      "$RINGBELL perf --device cpu --ranks 2 -w 1 -n 200 -c 0 --sizes 8 --rate 2000 -J " + folder_ + "/a.json ";
  const Outcome parking = run_program("RINGBELL_IDLE_PARK_US=10 " + command);
  ASSERT_EQ(parking.code, 0) << parking.err;
  const nlohmann::json left = document();
  const Outcome held = run_program("RINGBELL_IDLE_PARK_US=10 " + command + "--hold");
  ASSERT_EQ(held.code, 0) << held.err;
  const nlohmann::json stayed = document();
  EXPECT_EQ(left.at("rows").back().at("rate_hz"), 2000);
  EXPECT_FALSE(left.at("rows").back().contains("hold"));
  EXPECT_TRUE(stayed.at("rows").back().at("hold"));
  EXPECT_GT(left.at("rows").back().at("launches"), 100) << "calls 500 us apart, a worker that leaves after 10";
  EXPECT_LE(stayed.at("rows").back().at("launches"), 1);
}

TEST_F(IssueWays, WhatCannotBeIsAUsageErrorThatNamesIt) {
  const struct {
    const char* options;
    const char* words;
  } kBad[] = {
      {"--issue bell", "--issue"},
      {"--issue bell", "one of host, after, stream, graph, chain"},
      {"--issue host,host", "host is there twice"},
      {"--issue ''", "--issue"},
      {"-G 2 --issue stream", "-G 2 and --issue stream exclude each other"},
      {"-G 2", "-G 2 and -n exclude each other"},
      {"-G x", "-G"},
      {"--rate 0", "--rate"},
      {"--rate 100 --issue graph", "--rate 100 and --issue graph exclude each other"},
      {"--issue stream --l2 cold", "--l2 cold and --issue stream exclude each other"},
  };
  for (const auto& bad : kBad) {
    const Outcome run = run_program(kSmall + bad.options);
    EXPECT_EQ(run.code, 64) << bad.options << run.err;
    EXPECT_TRUE(contains(run.err, bad.words)) << bad.options << ": " << run.err;
  }
}

}  // namespace
}  // namespace ringbell::test
