// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The logger: the only way the library prints. RINGBELL_LOG (default warn) and RINGBELL_LOG_FILE are read at the first
// use. Nothing is printed by submit or wait on success. Callers make the text; this header knows no formatting library.
#ifndef RINGBELL_HOST_LOG_HPP_
#define RINGBELL_HOST_LOG_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ringbell::host {

enum class LogLevel : std::uint8_t { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

/// Gets the level, the rank (-1 when none is known) and the text without prefix. Called on the logging thread, one call
/// at a time; what it throws is swallowed. It must not log.
using LogHandler = std::function<void(LogLevel level, int rank, std::string_view text)>;

/// Replaces the output (stderr or RINGBELL_LOG_FILE) by `handler`; an empty one restores it. Thread-safe.
void set_log_handler(LogHandler handler);
/// Overrides RINGBELL_LOG. Thread-safe.
void set_log_level(LogLevel level) noexcept;

/// One relaxed load: ask before making the text.
bool log_enabled(LogLevel level) noexcept;
/// Prints "ringbell: warn: rank 2: text". Never throws; may block on the output. Thread-safe.
void log_message(LogLevel level, std::string_view text) noexcept;
/// As log_message, but only the first time in this process for `key`. @return true when it was the first time.
bool log_once(std::string_view key, LogLevel level, std::string_view text) noexcept;

/// The rank that messages of this thread carry while the object lives (ranks may be threads of one process).
class LogRankScope {
 public:
  explicit LogRankScope(int rank) noexcept;
  ~LogRankScope();
  LogRankScope(const LogRankScope&) = delete;
  LogRankScope& operator=(const LogRankScope&) = delete;

 private:
  int previous_;
};

/// RINGBELL_LOG_FILE with %r (rank or "none"), %p (pid), %h (host name), %% expanded. Pure; for tests.
std::string expand_log_path(std::string_view pattern, int rank, long pid, std::string_view host);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_LOG_HPP_
