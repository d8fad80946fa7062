// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/log.hpp"

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "host/env.hpp"

namespace ringbell::host {
namespace {

constexpr int kLevelUnread = -1;
constexpr int kNoRank = -1;

// Outside State: log_enabled is called from paths that must not take a lock.
std::atomic<int> level_now{kLevelUnread};
thread_local int rank_of_thread = kNoRank;

constexpr const char* level_text(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "?";
}

spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kDebug: return spdlog::level::debug;
  }
  return spdlog::level::err;
}

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink, const char* pattern) {
  auto logger = std::make_shared<spdlog::logger>("ringbell", std::move(sink));
  logger->set_level(spdlog::level::trace);  // the level is ours
  logger->flush_on(spdlog::level::trace);
  logger->set_pattern(pattern);
  return logger;
}

struct State {
  std::mutex mutex;
  LogHandler handler;
  std::optional<std::string> file_pattern;
  std::shared_ptr<spdlog::logger> console = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), "%v");
  std::map<std::string, std::shared_ptr<spdlog::logger>> files;  // by expanded path; null: could not be opened
  std::set<std::string, std::less<>> said;

  State() {
    const Env env = Env::of_process();
    if (auto pattern = env.raw("RINGBELL_LOG_FILE"); pattern && !pattern->empty()) file_pattern = std::move(pattern);
  }

  spdlog::logger& output(int rank) {
    if (!file_pattern) return *console;
    char host[256] = "unknown";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    const std::string path = expand_log_path(*file_pattern, rank, getpid(), host);
    const auto [entry, fresh] = files.try_emplace(path);
    if (fresh) {
      try {
        // A folder that is missing is more likely a slip than a wish; spdlog would make it.
        const std::filesystem::path folder = std::filesystem::path(path).parent_path();
        if (!folder.empty() && !std::filesystem::is_directory(folder)) {
          throw std::runtime_error("there is no folder " + folder.string());
        }
        entry->second =
            make_logger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path), "%Y-%m-%dT%H:%M:%S.%e %v");
      } catch (const std::exception& error) {
        console->log(spdlog::level::warn,
                     "ringbell: warn: RINGBELL_LOG_FILE='{}' cannot be written ({}); logging to stderr", *file_pattern,
                     error.what());
      }
    }
    return entry->second ? *entry->second : *console;
  }
};

// Never destroyed: the service thread may log while static objects die.
State& state() {
  static State* const instance = new State;
  return *instance;
}

void read_level_once() {
  LogLevel level = LogLevel::kWarn;
  std::string complaint;
  try {
    const auto text = Env::of_process().text(EnvVar::kLog);
    if (text == "error") level = LogLevel::kError;
    if (text == "info") level = LogLevel::kInfo;
    if (text == "debug") level = LogLevel::kDebug;
  } catch (const std::exception& error) {
    complaint = error.what();  // set-up, which may throw, refuses it; a log call must not
  }
  int unread = kLevelUnread;
  const bool first = level_now.compare_exchange_strong(unread, static_cast<int>(level), std::memory_order_relaxed);
  if (first && !complaint.empty()) log_message(LogLevel::kWarn, complaint);
}

}  // namespace

void set_log_handler(LogHandler handler) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.handler = std::move(handler);
}

void set_log_level(LogLevel level) noexcept { level_now.store(static_cast<int>(level), std::memory_order_relaxed); }

bool log_enabled(LogLevel level) noexcept {
  int now = level_now.load(std::memory_order_relaxed);
  if (now == kLevelUnread) [[unlikely]] {
    try {
      read_level_once();
    } catch (...) {
      return level <= LogLevel::kWarn;
    }
    now = level_now.load(std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= now;
}

void log_message(LogLevel level, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  try {
    State& s = state();
    const int rank = rank_of_thread;
    const std::lock_guard lock(s.mutex);
    if (s.handler) {
      s.handler(level, rank, text);
      return;
    }
    const std::string line = rank == kNoRank ? fmt::format("ringbell: {}: {}", level_text(level), text)
                                             : fmt::format("ringbell: {}: rank {}: {}", level_text(level), rank, text);
    s.output(rank).log(spdlog_level(level), spdlog::string_view_t(line));
  } catch (...) {  // out of memory or a throwing handler: a lost line must not become a failed call
  }
}

bool log_once(std::string_view key, LogLevel level, std::string_view text) noexcept {
  try {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (s.said.find(key) != s.said.end()) return false;
    s.said.emplace(key);
  } catch (...) {
    return false;
  }
  log_message(level, text);
  return true;
}

LogRankScope::LogRankScope(int rank) noexcept : previous_(rank_of_thread) { rank_of_thread = rank; }
LogRankScope::~LogRankScope() { rank_of_thread = previous_; }

std::string expand_log_path(std::string_view pattern, int rank, long pid, std::string_view host) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'r': path += rank == kNoRank ? std::string("none") : std::to_string(rank); break;
      case 'p': path += std::to_string(pid); break;
      case 'h': path += host; break;
      case '%': path += '%'; break;
      default: path += {'%', pattern[i]}; break;
    }
  }
  return path;
}

}  // namespace ringbell::host
