// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell top`: what top_format.hpp shows, once or every second.
#include <string>
#include <vector>

#include <unistd.h>

#include "runtime/session_view.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/top_format.hpp"

namespace ringbell::tools {
namespace {

constexpr double kApartSeconds = 0.05;  // between the two looks of one view
constexpr double kRefreshSeconds = 0.95;
constexpr double kFirstRateSeconds = 0.2;

constexpr const char* kClear = "\x1b[H\x1b[2J";

std::vector<session::SessionView> look() {
  try {
    return session::view_sessions({}, kApartSeconds);
  } catch (const Error& error) {
    throw ExitError(kExitEnvironment, error.what());
  }
}

void pause(double seconds) { usleep(static_cast<useconds_t>(seconds * 1e6)); }

std::string text_of(TopFormat format, const std::vector<session::SessionView>& before,
                    const std::vector<session::SessionView>& now) {
  switch (format) {
    case TopFormat::kTable: return top_table(before, now);
    case TopFormat::kJson: return top_json(before, now);
    case TopFormat::kPrometheus: return top_prometheus(now);
  }
  return {};
}

}  // namespace

int top_command(const TopOptions& options) {
  const bool clears = options.format == TopFormat::kTable && !options.once && isatty(STDOUT_FILENO) != 0;
  std::vector<session::SessionView> before = look();
  for (double apart = kFirstRateSeconds;; apart = kRefreshSeconds) {
    pause(apart);
    std::vector<session::SessionView> now = look();
    print((clears ? kClear : "") + text_of(options.format, before, now));
    if (options.once) return kExitOk;
    before = std::move(now);
  }
}

}  // namespace ringbell::tools
