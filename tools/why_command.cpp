// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell why`: whom does everybody wait for, in running sessions or in dumps. Who that is judges why_culprit.hpp.
#include <algorithm>
#include <string>
#include <vector>

#include <unistd.h>

#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/why_culprit.hpp"
#include "tools/why_dumps.hpp"
#include "tools/why_text.hpp"

namespace ringbell::tools {
namespace {

/// Two looks: a wait that is over before the second is none to tell.
constexpr double kApartSeconds = 0.05;

int exit_code_of(Finding finding) {
  switch (finding) {
    case Finding::kNobodyWaits: return kExitOk;
    case Finding::kSomebodyWaits: return kExitWrong;
    case Finding::kBroken: return kExitBroken;
  }
  return kExitBroken;
}

int why_dumps(const std::vector<std::string>& paths) {
  std::vector<FlightDump> dumps;
  for (const std::string& path : paths) dumps.push_back(read_dump(path));
  const session::SessionView view = merge_dumps(dumps, paths);
  const Culprit culprit = find_culprit(view);
  const std::string difference = first_difference(dumps);
  print(session_text(view) + (difference.empty() ? "" : difference + "\n") + culprit.text + "\n");
  return exit_code_of(culprit.finding);
}

}  // namespace

int why_command(const WhyOptions& options) {
  if (!options.files.empty()) return why_dumps(options.files);
  std::vector<session::SessionView> sessions;
  try {
    sessions = session::view_sessions({options.pid, options.session}, kApartSeconds);
  } catch (const Error& error) {
    throw ExitError(kExitEnvironment, error.what());
  }
  if (sessions.empty()) {
    throw ExitError(kExitEnvironment, "no session of uid " + std::to_string(geteuid()) +
                                          " is running here; to read what ended ones left, give the files that they "
                                          "wrote to RINGBELL_DUMP_DIR");
  }
  // What is worst stands last.
  std::vector<std::pair<int, std::string>> told;
  for (const session::SessionView& view : sessions) {
    const Culprit culprit = find_culprit(view);
    told.emplace_back(exit_code_of(culprit.finding),
                      session_text(view) + (view.unreadable.empty() ? culprit.text + "\n" : ""));
  }
  std::stable_sort(told.begin(), told.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (const auto& [code, session] : told) text += session;
  print(text);
  return told.back().first;
}

}  // namespace ringbell::tools
