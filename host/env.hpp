// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The one table of RINGBELL_* variables, and typed reads of them. Other launchers' variables are host/launch_env.hpp.
// Reads a snapshot, so tests give a map; nothing here changes the environment.
#ifndef RINGBELL_HOST_ENV_HPP_
#define RINGBELL_HOST_ENV_HPP_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringbell::host {

using EnvMap = std::map<std::string, std::string, std::less<>>;

/// Row numbers of the table.
enum class EnvVar : std::uint8_t {
  kRank,
  kWorld,
  kLocalRank,
  kSession,
  kLauncher,
  kTimeoutS,
  kInitTimeoutS,
  kProto,
  kAlgo,
  kDevice,
  kResident,
  kAllowSharedDevice,
  kCheckPointers,
  kQueueDepth,
  kSlotBytes,
  kIdleParkUs,
  kLeaseUs,
  kLog,
  kLogFile,
  kFault,
  kTimeScale,
  kDumpDir,
};
inline constexpr int kEnvVarCount = 22;

enum class EnvType : std::uint8_t { kInteger, kNumber, kFlag, kChoice, kHex, kText };

/// One row. `minimum` and `maximum` bound kInteger and kNumber; `choices` is "a|b|c" for kChoice.
struct EnvRow {
  EnvVar id;
  const char* name;
  EnvType type;
  double minimum;
  double maximum;
  bool power_of_two;
  const char* choices;
  const char* default_text;  ///< what holds when unset, as a value or as words in parentheses
  const char* help;
  unsigned multiple_of = 1;  ///< of kInteger
};

/// The whole table, in EnvVar order.
std::span<const EnvRow> env_table() noexcept;
const EnvRow& env_row(EnvVar id) noexcept;

/// A snapshot of an environment with typed reads. Unset gives nullopt; set but empty, out of range or unreadable throws
/// Error(kInvalidArgument) naming variable, value and what is allowed. Immutable, so thread-safe.
class Env {
 public:
  explicit Env(EnvMap variables) : variables_(std::move(variables)) {}
  /// Copies the process environment (do not call while another thread changes it).
  static Env of_process();

  [[nodiscard]] bool has(EnvVar id) const;
  /// The unchecked text of any variable, ours or not; nullopt when unset.
  [[nodiscard]] std::optional<std::string> raw(std::string_view name) const;
  [[nodiscard]] std::optional<std::int64_t> integer(EnvVar id) const;  ///< kInteger
  [[nodiscard]] std::optional<double> number(EnvVar id) const;         ///< kNumber; "." decimals in any locale
  [[nodiscard]] std::optional<bool> flag(EnvVar id) const;             ///< kFlag: 0 or 1
  [[nodiscard]] std::optional<std::string> text(EnvVar id) const;      ///< kText, kHex, kChoice (exact spelling)

  /// Reads every variable once and throws for the first bad one.
  void check_all() const;
  /// One line per RINGBELL_* variable that the table does not know, with the closest known name.
  [[nodiscard]] std::vector<std::string> unknown_variables() const;
  [[nodiscard]] const EnvMap& variables() const noexcept { return variables_; }

 private:
  std::optional<std::string> checked_text(const EnvRow& row) const;
  EnvMap variables_;
};

/// Logs unknown_variables() of the process environment at warn, once per process.
void warn_unknown_variables_once(const Env& env);

/// The table as text for `ringbell env`: name, the value in `env` or "-", what is allowed, default, help.
std::string render_env_table(const Env& env);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_ENV_HPP_
