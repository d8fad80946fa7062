// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/fault_spec.hpp"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "host/error.hpp"

namespace ringbell::host {

namespace {

using device::FaultKind;

constexpr std::uint64_t kMaxDelayUs = 10'000'000;
constexpr std::uint64_t kUsualDelayUs = 100;

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw_error(Status::kInvalidArgument, fmt::format("RINGBELL_FAULT={}: {}", text, why),
              "the form is flip|drop|delay|tear:rank=R:publish=N, for delay and tear also publish=all and :us=U");
}

std::optional<FaultKind> kind_of(std::string_view word) {
  if (word == "flip") return FaultKind::kFlip;
  if (word == "drop") return FaultKind::kDrop;
  if (word == "delay") return FaultKind::kDelay;
  if (word == "tear") return FaultKind::kTear;
  return std::nullopt;
}

std::optional<std::uint64_t> number_of(std::string_view word) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return number;
}

/// Takes the text up to the next colon off `rest`.
std::string_view take(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const std::string_view word = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  return word;
}

}  // namespace

device::FaultPlan parse_fault(std::string_view text, int rank) {
  if (text.empty()) return {};
  std::string_view rest = text;
  const std::string_view kind_word = take(rest);
  const std::optional<FaultKind> kind = kind_of(kind_word);
  if (!kind) refuse(text, fmt::format("'{}' is no kind of fault", kind_word));
  const bool waits = *kind == FaultKind::kDelay || *kind == FaultKind::kTear;

  std::optional<std::uint64_t> named_rank;
  std::optional<std::uint64_t> publish;
  std::optional<std::uint64_t> delay_us;
  while (!rest.empty()) {
    const std::string_view word = take(rest);
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    std::optional<std::uint64_t>* field = key == "rank"      ? &named_rank
                                          : key == "publish" ? &publish
                                          : key == "us"      ? &delay_us
                                                             : nullptr;
    if (field == nullptr) refuse(text, fmt::format("'{}' is no field", key));
    if (field->has_value()) refuse(text, fmt::format("'{}' is said twice", key));
    *field = field == &publish && value == "all" ? 0 : number_of(value);
    if (!field->has_value()) refuse(text, fmt::format("'{}' is no number", value));
    if (field == &publish && **field == 0 && (value != "all" || !waits)) {
      refuse(text, fmt::format("publish={} does not go with {}; the first is 1", value, kind_word));
    }
  }
  if (!named_rank) refuse(text, "no rank= given");
  if (*named_rank >= static_cast<std::uint64_t>(device::kMaxRanks)) {
    refuse(text, fmt::format("rank {} is not below {}", *named_rank, device::kMaxRanks));
  }
  if (!publish) refuse(text, "no publish= given");
  if (delay_us && !waits) refuse(text, fmt::format("us= does not go with {}", kind_word));
  if (delay_us && (*delay_us == 0 || *delay_us > kMaxDelayUs)) {
    refuse(text, fmt::format("us={} is not between 1 and {}", *delay_us, kMaxDelayUs));
  }
  if (*named_rank != static_cast<std::uint64_t>(rank)) return {};
  return {*kind, *publish, waits ? delay_us.value_or(kUsualDelayUs) * 1000 : 0, 0};
}

}  // namespace ringbell::host
