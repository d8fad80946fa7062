// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's debug log (NCCL_DEBUG=INFO, subsystems INIT, TUNING, COLL, NVLS) tells of the algorithm that it took. It
// is for people and changes between versions: what is not understood is unknown, never an error. Pure.
//   2.18 .. 2.23   8 Bytes -> Algo 1 proto 0 time 7.8
//   2.24 ..        AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
//   2.27 ..        AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1
#ifndef RINGBELL_TOOLS_NCCL_LOG_HPP_
#define RINGBELL_TOOLS_NCCL_LOG_HPP_

#include <cctype>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/peer.hpp"

namespace ringbell::tools {
namespace detail {

inline std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
  return text;
}

/// Letters, digits and underscores at the begin; the rest is punctuation.
inline std::string leading_name(const std::string& word) {
  std::size_t end = 0;
  while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) != 0 || word[end] == '_')) ++end;
  return word.substr(0, end);
}

/// A name, or the number that older versions print in its place. Empty: neither.
inline std::string known(const std::string& word, const std::vector<std::string>& names) {
  const std::string text = lower(leading_name(word));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == lower(names[i]) || text == std::to_string(i)) return names[i];
  }
  return "";
}

/// The word behind the first of those that is one of `keys`.
inline std::string word_behind(const std::vector<std::string>& words, const std::vector<std::string>& keys) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    for (const std::string& key : keys) {
      if (lower(leading_name(words[i])) != key) continue;
      return words[i + 1] == ":" && i + 2 < words.size() ? words[i + 2] : words[i + 1];
    }
  }
  return "";
}

inline std::optional<PeerPath> path_of_line(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  // In the order of the numbers.
  const std::string algorithm = known(word_behind(words, {"algo", "algorithm"}),
                                      {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"});
  const std::string protocol = known(word_behind(words, {"proto", "protocol"}), {"LL", "LL128", "Simple"});
  if (!algorithm.empty() && !protocol.empty()) return PeerPath{algorithm, protocol, 0, 0};
  if (lower(line).find("symmetric") == std::string::npos || line.find("->") == std::string::npos) return std::nullopt;
  std::string kernel = leading_name(word_behind(words, {"kernel"}));
  if (kernel.empty()) return std::nullopt;
  const std::string prefix = "AllReduce_";
  if (kernel.compare(0, prefix.size(), prefix) == 0) kernel.erase(0, prefix.size());
  return PeerPath{"sym", kernel, 0, 0};
}

}  // namespace detail

/// Of the first call that `log` tells of.
inline std::optional<PeerPath> nccl_path(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (const auto path = detail::path_of_line(line)) return path;
  }
  return std::nullopt;
}

/// Whether NCCL could use NVLink SHARP (multicast) here.
inline std::optional<bool> nccl_nvls(const std::string& log) {
  constexpr std::string_view kWords = "NVLS multicast support is ";
  const std::size_t at = log.find(kWords);
  if (at == std::string::npos) return std::nullopt;
  return log.compare(at + kWords.size(), 4, "not ") != 0;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_NCCL_LOG_HPP_
