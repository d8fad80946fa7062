// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/launch_env.hpp"

#include <charconv>
#include <span>

#include <fmt/format.h>

#include "device/config.hpp"
#include "host/error.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

// One way in which a launcher says it. Rank and world are needed; everything else may be null. Where two names stand,
// the first that is set counts.
struct Convention {
  Launcher launcher;
  const char* title;  ///< for messages
  const char* rank;
  const char* world[2];
  const char* local_rank;
  const char* local_world;  ///< ranks on this host: another number than the world means several hosts
  const char* nodes[2];     ///< more than one means several hosts
  const char* identity[4];  ///< the job's name, joined
  bool identity_needs_all;  ///< half of it could be shared with another job
};

constexpr Convention kConventions[] = {
    {Launcher::kRingbell,
     "RINGBELL_*",
     "RINGBELL_RANK",
     {"RINGBELL_WORLD"},
     "RINGBELL_LOCAL_RANK",
     nullptr,
     {},
     {"RINGBELL_SESSION"},
     true},
    {Launcher::kTorch,
     "torchrun",
     "RANK",
     {"WORLD_SIZE"},
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"GROUP_WORLD_SIZE"},
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     false},
    {Launcher::kMpi,
     "Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     false},
    {Launcher::kMpi,
     "PMI",
     "PMI_RANK",
     {"PMI_SIZE"},
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {},
     {"PMI_JOBID", "PMI_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"},
     false},
    {Launcher::kMpi, "PMIx", "PMIX_RANK", {"PMIX_SIZE"}, nullptr, nullptr, {}, {"PMIX_NAMESPACE"}, false},
    {Launcher::kSlurm,
     "Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     nullptr,
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     true},
};

struct Found {
  const Convention* convention = nullptr;
  bool complete = false;
  std::string rank_name, rank_text;    ///< empty when missing
  std::string world_name, world_text;  ///< empty when missing
};

std::optional<std::string> lookup(const Env& env, const char* name) {
  return name == nullptr ? std::nullopt : env.raw(name);
}

std::optional<std::string> lookup_first(const Env& env, std::span<const char* const> names,
                                        std::string* which = nullptr) {
  for (const char* name : names) {
    if (auto value = lookup(env, name)) {
      if (which != nullptr) *which = name;
      return value;
    }
  }
  return std::nullopt;
}

std::optional<long> whole_number(std::string_view text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

long checked_number(std::string_view name, std::string_view text) {
  const auto value = whole_number(text);
  if (!value) {
    throw_error(Status::kInvalidArgument, fmt::format("{}='{}' is not a whole number", name, text),
                "unset it, or let the launcher set it");
  }
  return *value;
}

// Outside a step (salloc's shell, sbatch's script, an interactive or extern step) Slurm's variables describe the job
// and not this process. Those pseudo steps have ids from 0xfffffff0 up.
bool inside_slurm_step(const Env& env) {
  const auto step = env.raw("SLURM_STEP_ID");
  const auto id = step ? whole_number(*step) : std::nullopt;
  return id && *id >= 0 && *id < 0xfffffff0L;
}

std::optional<Found> look(const Env& env, const Convention& convention) {
  Found found;
  found.convention = &convention;
  if (convention.launcher == Launcher::kSlurm && !inside_slurm_step(env)) return std::nullopt;
  if (auto rank = lookup(env, convention.rank)) {
    found.rank_name = convention.rank;
    found.rank_text = *rank;
  }
  if (auto world = lookup_first(env, convention.world, &found.world_name)) found.world_text = *world;
  if (found.rank_name.empty() && found.world_name.empty()) return std::nullopt;
  // Slurm sets SLURM_NTASKS for the whole job, and some systems export half of another launcher's set: not ours to
  // judge unless it is chosen.
  found.complete = !found.rank_name.empty() && !found.world_name.empty();
  return found;
}

std::string partial_text(const Found& found) {
  const Convention& c = *found.convention;
  const bool has_rank = !found.rank_name.empty();
  return fmt::format("{} is set but {} is not", has_rank ? found.rank_name : found.world_name,
                     has_rank ? c.world[0] : c.rank);
}

std::string set_text(const Found& found) {
  if (!found.complete) return fmt::format("{} (partial: {})", found.convention->title, partial_text(found));
  return fmt::format("{} ({}={}, {}={})", found.convention->title, found.rank_name, found.rank_text, found.world_name,
                     found.world_text);
}

void check_one_host(const Env& env, const Convention& c, std::string_view world_name, long world) {
  const auto local = lookup(env, c.local_world);
  if (local && checked_number(c.local_world, *local) != world) {
    throw_error(
        Status::kInvalidArgument,
        fmt::format("{}={} but {}={}: the ranks are on several hosts", world_name, world, c.local_world, *local),
        "ringbell joins the GPUs of one host; use a group per host (unique_id_create) and another library between "
        "hosts");
  }
  std::string name;
  const auto nodes = lookup_first(env, c.nodes, &name);
  if (nodes && checked_number(name, *nodes) > 1) {
    throw_error(
        Status::kInvalidArgument, fmt::format("{}={}: the ranks are on several hosts", name, *nodes),
        "ringbell joins the GPUs of one host; use a group per host (unique_id_create) and another library between "
        "hosts");
  }
}

void check_rank_and_world(std::string_view rank_name, long rank, std::string_view world_name, long world) {
  if (world < 1 || world > device::kMaxRanks) {
    throw_error(Status::kInvalidArgument, fmt::format("{}={}", world_name, world),
                fmt::format("a group has 1 to {} ranks", device::kMaxRanks));
  }
  if (rank < 0 || rank >= world) {
    throw_error(Status::kInvalidArgument, fmt::format("{}={} with {}={}", rank_name, rank, world_name, world),
                fmt::format("ranks go from 0 to {}", world - 1));
  }
}

// Two jobs of one machine may well have these in common.
bool tells_jobs_apart(std::string_view name) { return name != "MASTER_ADDR" && name != "TORCHELASTIC_RESTART_COUNT"; }

// The values are joined with '\n', which no job name holds, so that ("a","bc") and ("ab","c") differ.
void name_session(const Env& env, const Convention& c, Launch& launch) {
  std::string identity;
  bool any = false;
  bool all = true;
  for (const char* name : c.identity) {
    if (name == nullptr) break;
    const auto value = lookup(env, name);
    const bool given = value && !value->empty();
    any = any || (given && tells_jobs_apart(name));
    all = all && given;
    identity += fmt::format("\n{}={}", name, given ? *value : "");
  }
  launch.session_is_named = c.identity_needs_all ? all : any;
  if (!launch.session_is_named) {
    if (const auto session = env.text(EnvVar::kSession)) {
      launch.session_is_named = true;
      identity = fmt::format("\nRINGBELL_SESSION={}", *session);
    }
  }
  launch.session_key = fmt::format("{}{}", c.title, launch.session_is_named ? identity : "\nunnamed");
}

Launch read_set(const Env& env, const Found& found) {
  const Convention& c = *found.convention;
  Launch launch;
  launch.launcher = c.launcher;
  const long rank = checked_number(found.rank_name, found.rank_text);
  const long world = checked_number(found.world_name, found.world_text);
  check_one_host(env, c, found.world_name, world);
  check_rank_and_world(found.rank_name, rank, found.world_name, world);
  launch.rank = static_cast<int>(rank);
  launch.world = static_cast<int>(world);
  launch.local_rank = launch.rank;
  if (const auto local = lookup(env, c.local_rank)) {
    const long value = checked_number(c.local_rank, *local);
    if (value < 0 || value >= world) {
      throw_error(Status::kInvalidArgument,
                  fmt::format("{}={} with {}={}", c.local_rank, value, found.world_name, world),
                  fmt::format("on one host local ranks go from 0 to {}", world - 1));
    }
    launch.local_rank = static_cast<int>(value);
  }
  if (c.launcher == Launcher::kRingbell) static_cast<void>(env.text(EnvVar::kSession));  // throws for a bad one
  name_session(env, c, launch);
  return launch;
}

// A lone "rank 0 of 1" beside a launcher that says more is the classic silent mistake: N independent groups of one.
void refuse_hidden_world(const Launch& chosen, std::string_view chosen_text, std::span<const Found> lower) {
  if (chosen.world != 1) return;
  for (const Found& other : lower) {
    const auto world = other.complete ? whole_number(other.world_text) : std::nullopt;
    if (!world || *world <= 1) continue;
    throw_error(
        Status::kInvalidArgument,
        fmt::format("{} says a world of 1, but {} says {} ranks", chosen_text, other.convention->title, *world),
        fmt::format("set RINGBELL_LAUNCHER={} to use those, RINGBELL_LAUNCHER={} for a world of 1, or unset the "
                    "wrong variables",
                    launcher_name(other.convention->launcher), launcher_name(chosen.launcher)));
  }
}

void add_note(Launch& launch, std::string_view chosen, std::span<const Found> others) {
  if (others.empty()) return;
  launch.note = fmt::format("rank {} of {} from {}; ignored:", launch.rank, launch.world, chosen);
  const char* separator = " ";
  for (const Found& other : others) {
    launch.note += separator + set_text(other);
    separator = ", ";
  }
}

std::optional<Launcher> forced_launcher(const Env& env) {
  const auto text = env.text(EnvVar::kLauncher);
  if (!text) return std::nullopt;
  for (int i = 0; i <= static_cast<int>(Launcher::kSlurm); ++i) {
    if (*text == launcher_name(static_cast<Launcher>(i))) return static_cast<Launcher>(i);
  }
  return std::nullopt;  // not reached: text() has checked the choice
}

constexpr const char* kHowToStart =
    "start the program with `ringbell run -n N -- CMD`, torchrun, mpirun or srun, or set "
    "RINGBELL_RANK and RINGBELL_WORLD";

Launch take_arguments(const ExplicitLaunch& arguments, std::span<const Found> others, bool forced) {
  check_rank_and_world("rank", arguments.rank, "world", arguments.world);
  Launch launch;
  launch.launcher = Launcher::kExplicit;
  launch.rank = arguments.rank;
  launch.world = arguments.world;
  launch.local_rank = arguments.local_rank < 0 ? arguments.rank : arguments.local_rank;
  launch.session_key = "explicit\nunnamed";
  if (!forced) refuse_hidden_world(launch, "the call", others);
  add_note(launch, "the call", others);
  return launch;
}

}  // namespace

const char* launcher_name(Launcher launcher) noexcept {
  switch (launcher) {
    case Launcher::kExplicit: return "explicit";
    case Launcher::kRingbell: return "ringbell";
    case Launcher::kTorch: return "torch";
    case Launcher::kMpi: return "mpi";
    case Launcher::kSlurm: return "slurm";
  }
  return "?";
}

std::optional<Launch> find_launch(const Env& env, const std::optional<ExplicitLaunch>& arguments) {
  std::vector<Found> sets;
  for (const Convention& convention : kConventions) {
    if (auto found = look(env, convention)) sets.push_back(std::move(*found));
  }
  const std::optional<Launcher> forced = forced_launcher(env);

  if (arguments && (!forced || *forced == Launcher::kExplicit))
    return take_arguments(*arguments, sets, forced.has_value());
  if (forced == Launcher::kExplicit) {
    throw_error(Status::kInvalidArgument, "RINGBELL_LAUNCHER='explicit' but the call names no rank and world",
                "pass them, or unset RINGBELL_LAUNCHER");
  }

  std::size_t chosen = sets.size();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (forced && sets[i].convention->launcher != *forced) continue;
    // Whoever sets our own variables means us: half of them is a mistake even where another launcher would do.
    const bool own = sets[i].convention->launcher == Launcher::kRingbell;
    if (sets[i].complete || own) {
      chosen = i;
      break;
    }
    if (forced && chosen == sets.size()) chosen = i;  // partial; a later variant of the same launcher may be complete
  }
  if (chosen == sets.size()) {
    if (forced) {
      throw_error(Status::kInvalidArgument,
                  fmt::format("RINGBELL_LAUNCHER='{}' but its variables are not set", launcher_name(*forced)),
                  kHowToStart);
    }
    if (sets.empty()) return std::nullopt;
    chosen = 0;  // nothing but partial sets
  }
  const Found& set = sets[chosen];
  if (!set.complete) {
    throw_error(Status::kInvalidArgument,
                fmt::format("the launch environment of {} is partial: {}", set.convention->title, partial_text(set)),
                fmt::format("set both, or unset {}; to start ranks: {}",
                            set.rank_name.empty() ? set.world_name : set.rank_name, kHowToStart));
  }

  Launch launch = read_set(env, set);
  std::vector<Found> others;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (i != chosen) others.push_back(sets[i]);
  }
  const std::string text = set_text(set);
  if (!forced) refuse_hidden_world(launch, text, others);
  add_note(launch, text, others);
  return launch;
}

UniqueId unique_id_of_launch(const Launch& launch) {
  if (launch.session_is_named) return unique_id_from_key(launch.session_key);
  if (launch.world == 1) return unique_id_create();
  throw_error(Status::kInvalidArgument,
              fmt::format("rank {} of {}: the launch variables ({}) name no job, so that another job of this user that "
                          "starts now could take its ranks",
                          launch.rank, launch.world, launcher_name(launch.launcher)),
              "give all ranks of the job the same RINGBELL_SESSION, and no other job (openssl rand -hex 16), or start "
              "them with `ringbell run -n N -- CMD`");
}

Launch resolve_launch(const Env& env, const std::optional<ExplicitLaunch>& arguments) {
  auto launch = find_launch(env, arguments);
  if (!launch) throw_error(Status::kInvalidArgument, "no launcher has said which rank this process is", kHowToStart);
  return *launch;
}

}  // namespace ringbell::host
