// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell run`: the ranks of any program.
#include <cstdlib>
#include <string>

#include <signal.h>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/process_group.hpp"

namespace ringbell::tools {

namespace {

// A rank's own words may be missing: what a signal ended could say none.
void say_end(const GroupResult& result) {
  if (result.received != 0 || result.signal == SIGPIPE) return;  // asked for; `| head` is no error of the job
  const std::string rank = "ringbell run: rank " + std::to_string(result.failed_rank);
  complain(rank +
           (result.signal != 0 ? " was ended by signal " + std::to_string(result.signal)
                               : " exited with code " + std::to_string(result.exit_code)) +
           "\n");
}

}  // namespace

int run_command(const RunOptions& options) {
  GroupPlan plan;
  plan.command = options.command;
  plan.ranks = options.ranks;
  plan.session = session::new_token();
  plan.tag = options.tag;
  if (options.device) {
    plan.environment["RINGBELL_DEVICE"] = *options.device;
  } else if (std::getenv("RINGBELL_DEVICE") == nullptr) {
    plan.environment["RINGBELL_DEVICE"] = "auto";
  }
  if (std::getenv("MASTER_ADDR") == nullptr) plan.environment["MASTER_ADDR"] = "127.0.0.1";
  if (std::getenv("MASTER_PORT") == nullptr) plan.environment["MASTER_PORT"] = std::to_string(free_port());

  const GroupResult result = run_group(plan);
  const std::string leftover = session::remove_leftover(plan.session);
  if (!leftover.empty()) complain("ringbell run: " + leftover + "\n");
  if (result.failed_rank < 0) return kExitOk;
  say_end(result);
  return result.signal != 0 ? kExitSignal + result.signal : result.exit_code;
}

}  // namespace ringbell::tools
