// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Values of the command line: sizes with suffixes, lists, names. Pure; every error is a UsageError that names the
// option, the value and what is allowed. Which options exist is perf_options.cpp and ringbell_main.cpp.
#ifndef RINGBELL_TOOLS_PARSE_HPP_
#define RINGBELL_TOOLS_PARSE_HPP_

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/ringbell.hpp"
#include "tools/exit_codes.hpp"

namespace ringbell::tools {

[[noreturn]] inline void refuse(std::string_view option, std::string_view value, std::string_view allowed) {
  throw UsageError(std::string(option) + " '" + std::string(value) + "': " + std::string(allowed));
}

/// "8", "64K", "1M", "2G" (powers of 1024, either case, an optional B) in bytes.
inline std::uint64_t parse_size(std::string_view option, std::string_view text) {
  constexpr std::string_view kAllowed = "a size is a whole number with an optional K, M or G (1024), e.g. 8, 64K, 1M";
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{}) refuse(option, text, kAllowed);
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  if (suffix.size() > 1 && (suffix.back() == 'B' || suffix.back() == 'b')) suffix.remove_suffix(1);
  int shift = 0;
  if (suffix == "K" || suffix == "k") {
    shift = 10;
  } else if (suffix == "M" || suffix == "m") {
    shift = 20;
  } else if (suffix == "G" || suffix == "g") {
    shift = 30;
  } else if (!suffix.empty() && suffix != "B" && suffix != "b") {
    refuse(option, text, kAllowed);
  }
  if (value > std::numeric_limits<std::uint64_t>::max() >> shift) refuse(option, text, "does not fit 64 bits");
  return value << shift;
}

inline std::uint64_t parse_whole(std::string_view option, std::string_view text, std::uint64_t minimum,
                                 std::uint64_t maximum) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || value < minimum || value > maximum) {
    refuse(option, text, "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
  }
  return value;
}

/// Seconds, "." decimals in any locale.
inline double parse_seconds(std::string_view option, std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || !(value >= 0) || !(value <= 1e9)) {
    refuse(option, text, "seconds from 0 (for ever) to 1e9, e.g. 0.5");
  }
  return value;
}

/// The parts between commas; an empty part is refused.
inline std::vector<std::string_view> split_list(std::string_view option, std::string_view text) {
  std::vector<std::string_view> parts;
  std::string_view left = text;
  for (;;) {
    const std::size_t comma = left.find(',');
    const std::string_view part = left.substr(0, comma);
    if (part.empty()) refuse(option, text, "a list is values with commas between them and no blanks");
    parts.push_back(part);
    if (comma == std::string_view::npos) return parts;
    left.remove_prefix(comma + 1);
  }
}

inline std::string join(const std::vector<std::string_view>& parts, std::string_view separator) {
  std::string text;
  for (const std::string_view part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

/// @return the position of `text` in `names`; unknown values list them all.
inline std::size_t parse_choice(std::string_view option, std::string_view text,
                                const std::vector<std::string_view>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return i;
  }
  refuse(option, text, "one of " + join(names, ", "));
}

inline std::vector<std::string_view> dtype_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) names.emplace_back(dtype_name(static_cast<DType>(i)));
  return names;
}

inline std::vector<std::string_view> reduce_op_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kReduceOpCount; ++i) names.emplace_back(reduce_op_name(static_cast<ReduceOp>(i)));
  return names;
}

/// "float32,bfloat16" or "all"; nccl-tests' float, double and half are understood.
inline std::vector<DType> parse_dtypes(std::string_view option, std::string_view text) {
  std::vector<std::string_view> names = dtype_names();
  std::vector<DType> dtypes;
  if (text == "all") {
    for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
    return dtypes;
  }
  for (std::string_view part : split_list(option, text)) {
    if (part == "float") part = dtype_name(DType::kFloat32);
    if (part == "double") part = dtype_name(DType::kFloat64);
    if (part == "half") part = dtype_name(DType::kFloat16);
    names.emplace_back("all");
    const std::size_t index = parse_choice(option, part, names);
    names.pop_back();
    if (index == names.size()) refuse(option, text, "all stands alone");
    dtypes.push_back(static_cast<DType>(index));
  }
  return dtypes;
}

/// "sum,max" or "all".
inline std::vector<ReduceOp> parse_reduce_ops(std::string_view option, std::string_view text) {
  std::vector<std::string_view> names = reduce_op_names();
  std::vector<ReduceOp> ops;
  if (text == "all") {
    for (int i = 0; i < kReduceOpCount; ++i) ops.push_back(static_cast<ReduceOp>(i));
    return ops;
  }
  names.emplace_back("all");
  for (const std::string_view part : split_list(option, text)) {
    const std::size_t index = parse_choice(option, part, names);
    if (index == kReduceOpCount) refuse(option, text, "all stands alone");
    ops.push_back(static_cast<ReduceOp>(index));
  }
  return ops;
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PARSE_HPP_
