// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which rank am I, of how many: read from what launchers leave in the environment. Pure functions over a snapshot.
// Does not start anything and does not know segments.
#ifndef RINGBELL_HOST_LAUNCH_ENV_HPP_
#define RINGBELL_HOST_LAUNCH_ENV_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/ringbell_unique_id.hpp"
#include "host/env.hpp"

namespace ringbell::host {

/// In the order in which they are asked: the first COMPLETE set wins.
enum class Launcher : std::uint8_t {
  kExplicit = 0,  ///< arguments of the call
  kRingbell = 1,  ///< RINGBELL_RANK, RINGBELL_WORLD [, RINGBELL_LOCAL_RANK, RINGBELL_SESSION]
  kTorch = 2,     ///< RANK, WORLD_SIZE [, LOCAL_RANK, LOCAL_WORLD_SIZE]
  kMpi = 3,       ///< OMPI_COMM_WORLD_RANK/SIZE, or PMI_RANK/SIZE; PMIX_RANK alone is a partial set
  kSlurm = 4,     ///< SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, inside a step only
};
const char* launcher_name(Launcher launcher) noexcept;

struct ExplicitLaunch {
  int rank;
  int world;
  int local_rank = -1;  ///< -1: the rank
};

struct Launch {
  Launcher launcher = Launcher::kExplicit;
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  /// The same text on every rank of this job and (as far as the launcher tells) of no other: "torch:10.0.0.1:29500:..".
  std::string session_key;
  bool session_is_named = false;  ///< false: neither the launcher nor RINGBELL_SESSION tells this job from another one
  /// Empty, or the one info line that names the chosen set and what was ignored.
  std::string note;
};

/// @return the chosen set; nullopt when no launcher left anything.
/// @throws Error(kInvalidArgument): a partial set is all there is, or is chosen by RINGBELL_LAUNCHER, or is our own;
///   a value that is no number; rank >= world; a world across hosts; more than kMaxRanks ranks; a world of 1 while a
///   complete lower set says more.
std::optional<Launch> find_launch(const Env& env, const std::optional<ExplicitLaunch>& arguments = std::nullopt);

/// As find_launch, but nothing found is an error that says how to start ranks. Never a silent world of one.
Launch resolve_launch(const Env& env, const std::optional<ExplicitLaunch>& arguments = std::nullopt);

/// The id by which the ranks of this launch meet. A world of one that has no name meets nobody: it gets a fresh id.
/// @throws Error(kInvalidArgument): several ranks and no name, by which two jobs at once would take each other's ranks.
UniqueId unique_id_of_launch(const Launch& launch);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_LAUNCH_ENV_HPP_
