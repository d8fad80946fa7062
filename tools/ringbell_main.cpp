// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The program `ringbell`: reads the command line, calls the command, tells errors.
#include <exception>
#include <new>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"

namespace {

using namespace ringbell::tools;  // NOLINT

int environment_command() {
  print(ringbell::session::environment_table());
  try {
    ringbell::session::check_environment();
  } catch (const ringbell::Error& error) {
    throw ExitError(kExitEnvironment, error.what());
  }
  return kExitOk;
}

int dispatch(int argc, const char* const* argv) {
  const CommandLine line = read_command_line(argc, argv);
  switch (line.command) {
    case Command::kRun: return run_command(line.run);
    case Command::kPerf: return perf_command(line.perf, std::vector<std::string>(argv, argv + argc));
    case Command::kEnvironment: return environment_command();
    case Command::kClean: return clean_command(line.clean);
    case Command::kWhy: return why_command(line.why);
    case Command::kTop: return top_command(line.top);
    case Command::kText: break;
  }
  print(line.text);
  return kExitOk;
}

void tell(const char* text) {
  if (*text != 0) complain(std::string("ringbell: ") + text + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const ExitError& error) {
    tell(error.what());
    return error.code();
  } catch (const ringbell::Error& error) {
    tell(error.what());
    // What a launcher or the user left in the environment, not on the command line.
    return kExitEnvironment;
  } catch (const std::exception& error) {
    tell(error.what());
    return kExitBroken;
  }
}
