// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/env.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/log.hpp"

namespace ringbell::host {
namespace {

constexpr EnvRow kTable[] = {
    {EnvVar::kRank, "RINGBELL_RANK", EnvType::kInteger, 0, 7, false, nullptr, "(launcher)",
     "this process's rank; `ringbell run` sets it"},
    {EnvVar::kWorld, "RINGBELL_WORLD", EnvType::kInteger, 1, 8, false, nullptr, "(launcher)",
     "number of ranks; `ringbell run` sets it"},
    {EnvVar::kLocalRank, "RINGBELL_LOCAL_RANK", EnvType::kInteger, 0, 7, false, nullptr, "(RINGBELL_RANK)",
     "which GPU this rank takes"},
    {EnvVar::kSession, "RINGBELL_SESSION", EnvType::kHex, 8, 64, false, nullptr, "(launcher)",
     "the job's name, the same on all ranks and on no other job; `ringbell run` sets it"},
    {EnvVar::kLauncher, "RINGBELL_LAUNCHER", EnvType::kChoice, 0, 0, false, "explicit|ringbell|torch|mpi|slurm",
     "(first complete set)", "whose variables tell rank and world"},
    {EnvVar::kTimeoutS, "RINGBELL_TIMEOUT_S", EnvType::kNumber, 0, 1e9, false, nullptr, "30",
     "seconds an operation may wait for a peer; 0 waits for ever"},
    {EnvVar::kInitTimeoutS, "RINGBELL_INIT_TIMEOUT_S", EnvType::kNumber, 0, 1e9, false, nullptr, "120",
     "seconds that set-up waits for all ranks; 0 waits for ever"},
    {EnvVar::kProto, "RINGBELL_PROTO", EnvType::kChoice, 0, 0, false, "LL|LL128|Simple|auto", "auto",
     "forces the protocol"},
    {EnvVar::kAlgo, "RINGBELL_ALGO", EnvType::kChoice, 0, 0, false, "ring|oneshot|auto", "auto",
     "forces the algorithm"},
    {EnvVar::kDevice, "RINGBELL_DEVICE", EnvType::kChoice, 0, 0, false, "auto|cpu|cuda", "auto",
     "which executor runs the ranks"},
    {EnvVar::kResident, "RINGBELL_RESIDENT", EnvType::kFlag, 0, 1, false, nullptr, "1",
     "0: no worker stays, each call is launched"},
    {EnvVar::kAllowSharedDevice, "RINGBELL_ALLOW_SHARED_DEVICE", EnvType::kFlag, 0, 1, false, nullptr, "0",
     "1 lets several ranks, as processes, use one GPU"},
    {EnvVar::kCheckPointers, "RINGBELL_CHECK_POINTERS", EnvType::kChoice, 0, 0, false, "first|always|off", "first",
     "when the driver is asked about a buffer's range"},
    {EnvVar::kQueueDepth, "RINGBELL_QUEUE_DEPTH", EnvType::kInteger, 2, 4096, true, nullptr, "64",
     "commands in flight; a power of two"},
    {EnvVar::kSlotBytes, "RINGBELL_SLOT_BYTES", EnvType::kInteger, 1920, 8388480, false, nullptr, "61440",
     "bytes of payload in one staging slot", 1920},
    {EnvVar::kIdleParkUs, "RINGBELL_IDLE_PARK_US", EnvType::kNumber, 0, 1e9, false, nullptr, "100",
     "microseconds without a command before the worker parks"},
    {EnvVar::kLeaseUs, "RINGBELL_LEASE_US", EnvType::kNumber, 1, 1e9, false, nullptr, "10000",
     "microseconds that a resident kernel keeps its GPU at most"},
    {EnvVar::kLog, "RINGBELL_LOG", EnvType::kChoice, 0, 0, false, "error|warn|info|debug", "warn", "what is printed"},
    {EnvVar::kLogFile, "RINGBELL_LOG_FILE", EnvType::kText, 0, 0, false, nullptr, "(stderr)",
     "file for the log; %r rank, %p pid, %h host"},
    {EnvVar::kFault, "RINGBELL_FAULT", EnvType::kText, 0, 0, false, nullptr, "(none)",
     "plants a fault for tests, e.g. flip:rank=1:publish=1000"},
    {EnvVar::kTimeScale, "RINGBELL_TIME_SCALE", EnvType::kNumber, 1, 1e6, false, nullptr, "1",
     "multiplies all times, for sanitizers and emulators"},
    {EnvVar::kDumpDir, "RINGBELL_DUMP_DIR", EnvType::kText, 0, 0, false, nullptr, "(no dumps)",
     "folder for a rank's last calls as JSON when its communicator breaks; `ringbell why FILE...` reads them"},
};
static_assert(std::size(kTable) == kEnvVarCount);

// Ours by name, but settings of scripts and tests: not read here and not worth a warning.
constexpr std::string_view kForScripts[] = {"RINGBELL_PROGRAM", "RINGBELL_SOURCE_DIR", "RINGBELL_BUILD_DIR"};
constexpr std::string_view kForTests = "RINGBELL_TEST_";

std::string number_text(double value) { return fmt::format("{:.15g}", value); }

std::string allowed_text(const EnvRow& row) {
  switch (row.type) {
    case EnvType::kFlag: return "0 or 1";
    case EnvType::kChoice: {
      std::string text = "one of ";
      for (const char* c = row.choices; *c != 0; ++c) text += *c == '|' ? std::string(", ") : std::string(1, *c);
      return text;
    }
    case EnvType::kHex:
      return fmt::format("{} to {} hexadecimal digits", static_cast<int>(row.minimum), static_cast<int>(row.maximum));
    case EnvType::kText: return "a text";
    case EnvType::kInteger:
      return fmt::format("{} from {} to {}",
                         row.power_of_two       ? "a power of two"
                         : row.multiple_of != 1 ? fmt::format("a multiple of {}", row.multiple_of)
                                                : "a whole number",
                         number_text(row.minimum), number_text(row.maximum));
    case EnvType::kNumber:
      return fmt::format("a number from {} to {}", number_text(row.minimum), number_text(row.maximum));
  }
  return {};
}

[[noreturn]] void refuse(const EnvRow& row, std::string_view value) {
  throw_error(Status::kInvalidArgument,
              value.empty() ? fmt::format("{} is set but empty", row.name) : fmt::format("{}='{}'", row.name, value),
              fmt::format("it must be {}, or unset", allowed_text(row)));
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_choice(std::string_view choices, std::string_view value) {
  while (true) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const EnvRow> env_table() noexcept { return kTable; }
const EnvRow& env_row(EnvVar id) noexcept { return kTable[static_cast<int>(id)]; }

Env Env::of_process() {
  EnvMap variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));  // as getenv: the first of two wins
  }
  return Env(std::move(variables));
}

bool Env::has(EnvVar id) const { return variables_.find(std::string_view(env_row(id).name)) != variables_.end(); }

std::optional<std::string> Env::raw(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> Env::checked_text(const EnvRow& row) const {
  std::optional<std::string> value = raw(row.name);
  if (value && value->empty()) refuse(row, *value);
  return value;
}

std::optional<std::int64_t> Env::integer(EnvVar id) const {
  const EnvRow& row = env_row(id);
  const auto text = checked_text(row);
  if (!text) return std::nullopt;
  const auto value = parse<std::int64_t>(*text);
  if (!value || static_cast<double>(*value) < row.minimum || static_cast<double>(*value) > row.maximum ||
      (row.power_of_two && (*value & (*value - 1)) != 0) || *value % static_cast<std::int64_t>(row.multiple_of) != 0) {
    refuse(row, *text);
  }
  return value;
}

std::optional<double> Env::number(EnvVar id) const {
  const EnvRow& row = env_row(id);
  const auto text = checked_text(row);
  if (!text) return std::nullopt;
  const auto value = parse<double>(*text);
  // -0 and nan fall through every comparison below without the sign and isfinite tests.
  if (!value || !std::isfinite(*value) || std::signbit(*value) || *value < row.minimum || *value > row.maximum) {
    refuse(row, *text);
  }
  return value;
}

std::optional<bool> Env::flag(EnvVar id) const {
  const EnvRow& row = env_row(id);
  const auto text = checked_text(row);
  if (!text) return std::nullopt;
  if (*text != "0" && *text != "1") refuse(row, *text);
  return *text == "1";
}

std::optional<std::string> Env::text(EnvVar id) const {
  const EnvRow& row = env_row(id);
  auto value = checked_text(row);
  if (!value) return std::nullopt;
  if (row.type == EnvType::kChoice && !is_choice(row.choices, *value)) refuse(row, *value);
  if (row.type == EnvType::kHex && (!is_hex(*value) || static_cast<double>(value->size()) < row.minimum ||
                                    static_cast<double>(value->size()) > row.maximum)) {
    refuse(row, *value);
  }
  return value;
}

void Env::check_all() const {
  for (const EnvRow& row : kTable) {
    switch (row.type) {
      case EnvType::kInteger: static_cast<void>(integer(row.id)); break;
      case EnvType::kNumber: static_cast<void>(number(row.id)); break;
      case EnvType::kFlag: static_cast<void>(flag(row.id)); break;
      case EnvType::kChoice:
      case EnvType::kHex:
      case EnvType::kText: static_cast<void>(text(row.id)); break;
    }
  }
}

std::vector<std::string> Env::unknown_variables() const {
  std::vector<std::string> lines;
  for (auto it = variables_.lower_bound("RINGBELL_"); it != variables_.end() && it->first.starts_with("RINGBELL_");
       ++it) {
    const std::string& name = it->first;
    if (name.starts_with(kForTests)) continue;
    if (std::find(std::begin(kForScripts), std::end(kForScripts), name) != std::end(kForScripts)) continue;
    const EnvRow* closest = nullptr;
    std::size_t distance = name.size();
    for (const EnvRow& row : kTable) {
      const std::size_t d = edit_distance(name, row.name);
      if (d < distance || closest == nullptr) {
        closest = &row;
        distance = d;
      }
    }
    if (distance == 0) continue;
    lines.push_back(
        distance <= 4
            ? fmt::format("{} is not a variable of ringbell and has no effect; did you mean {}?", name, closest->name)
            : fmt::format("{} is not a variable of ringbell and has no effect; `ringbell env` lists "
                          "them",
                          name));
  }
  return lines;
}

void warn_unknown_variables_once(const Env& env) {
  static std::once_flag once;
  std::call_once(once, [&env] {
    for (const std::string& line : env.unknown_variables()) log_message(LogLevel::kWarn, line);
  });
}

std::string render_env_table(const Env& env) {
  static constexpr char kLine[] = "{:<30} {:<14} {:<42} {:<22} {}\n";
  std::string text = fmt::format(kLine, "variable", "value", "allowed", "default", "meaning");
  for (const EnvRow& row : kTable) {
    const auto value = env.raw(row.name);
    text += fmt::format(kLine, row.name, value ? fmt::format("'{}'", *value) : "-", allowed_text(row), row.default_text,
                        row.help);
  }
  for (const std::string& line : env.unknown_variables()) text += "# " + line + "\n";
  return text;
}

}  // namespace ringbell::host
