// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell run`: the ranks of any program.
#include <cstdlib>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/process_group.hpp"

namespace ringbell::tools {

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
  return result.signal != 0 ? kExitSignal + result.signal : result.exit_code;
}

}  // namespace ringbell::tools
