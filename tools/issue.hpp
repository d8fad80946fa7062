// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How perf issues calls (--issue): names, and what one measured sample is. Pure.
#ifndef RINGBELL_TOOLS_ISSUE_HPP_
#define RINGBELL_TOOLS_ISSUE_HPP_

#include <cstdint>
#include <string_view>
#include <vector>

namespace ringbell::tools {

enum class Issue : std::uint8_t {
  kHost,    ///< one call alone, submit to complete
  kAfter,   ///< the same after a point in a stream: a store by the stream, then the call
  kStream,  ///< calls on a stream, back to back
  kGraph,   ///< calls as nodes of a graph
};

/// A row's way, and whether a producer and a consumer kernel stand around every call.
struct IssueWay {
  Issue issue = Issue::kHost;
  bool chain = false;
};

/// Calls of one sample of kStream, kGraph and every chain; the sample is the time of one.
inline constexpr int kSampleCalls = 64;

constexpr const char* issue_name(Issue issue) {
  switch (issue) {
    case Issue::kHost: return "host";
    case Issue::kAfter: return "after";
    case Issue::kStream: return "stream";
    case Issue::kGraph: return "graph";
  }
  return "?";
}
/// As in a row: a chain says chain, and its way beside it.
constexpr const char* issue_name(IssueWay way) { return way.chain ? "chain" : issue_name(way.issue); }

/// One call alone: its own values, its own check, nothing but it between two looks at the clock.
constexpr bool is_single(IssueWay way) {
  return !way.chain && (way.issue == Issue::kHost || way.issue == Issue::kAfter);
}
constexpr bool needs_stream(IssueWay way) { return way.chain || way.issue != Issue::kHost; }

inline constexpr std::string_view kIssueWords[] = {"host", "after", "stream", "graph", "chain"};

/// The rows that a word of --issue stands for: chain is every way in turn. @param word index into kIssueWords
inline std::vector<IssueWay> issue_ways(std::size_t word) {
  constexpr Issue kAll[] = {Issue::kHost, Issue::kAfter, Issue::kStream, Issue::kGraph};
  if (word < 4) return {{kAll[word], false}};
  std::vector<IssueWay> ways;
  for (const Issue issue : kAll) ways.push_back({issue, true});
  return ways;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_ISSUE_HPP_
