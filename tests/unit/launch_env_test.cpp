// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables of launch environments: which set wins, what is refused, what names the session.
#include "host/launch_env.hpp"

#include <gtest/gtest.h>

#include "device/ringbell_error.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

Launch resolve(EnvMap map) { return resolve_launch(Env(std::move(map))); }

std::string refusal(EnvMap map) {
  try {
    const Launch launch = resolve(std::move(map));
    return "(accepted: " + std::to_string(launch.rank) + " of " + std::to_string(launch.world) + ")";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    return error.what();
  }
}

#define EXPECT_REFUSED(map, ...)                                                      \
  do {                                                                                \
    const std::string text = refusal(map);                                            \
    for (const std::string& part : std::initializer_list<std::string>{__VA_ARGS__}) { \
      EXPECT_NE(text.find(part), std::string::npos) << text;                          \
    }                                                                                 \
  } while (false)

const EnvMap kOmpi = {{"OMPI_COMM_WORLD_RANK", "2"},          {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "prterun-box-17@1"}, {"PMIX_RANK", "2"}};
const EnvMap kTorch = {{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", "29511"}};
const EnvMap kSlurmStep = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "8"},         {"SLURM_STEP_NUM_TASKS", "4"},
                           {"SLURM_LOCALID", "3"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_JOB_ID", "77"},
                           {"SLURM_STEP_ID", "0"}};

EnvMap operator+(EnvMap a, const EnvMap& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

struct Case {
  const char* title;
  EnvMap map;
  Launcher launcher;
  int rank, world, local_rank;
};

TEST(LaunchEnvTest, TheFirstCompleteSetWins) {
  const Case cases[] = {
      {"OMPI only", kOmpi, Launcher::kMpi, 2, 4, 2},
      {"PMI only", {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, Launcher::kMpi, 1, 3, 1},
      {"torch", kTorch, Launcher::kTorch, 1, 2, 1},
      {"RANK and WORLD_SIZE by hand", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, Launcher::kTorch, 0, 2, 0},
      {"Slurm step", kSlurmStep, Launcher::kSlurm, 3, 4, 3},
      {"SLURM_LOCALID=0 beside OMPI", kOmpi + EnvMap{{"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "1"}}, Launcher::kMpi, 2,
       4, 2},
      {"Slurm step around OMPI", kSlurmStep + kOmpi, Launcher::kMpi, 2, 4, 2},
      {"torch in a Slurm step", kSlurmStep + kTorch, Launcher::kTorch, 1, 2, 1},
      {"torch and OMPI disagree", kTorch + kOmpi, Launcher::kTorch, 1, 2, 1},
      {"RANK alone beside OMPI", kOmpi + EnvMap{{"RANK", "0"}}, Launcher::kMpi, 2, 4, 2},
      {"srun with PMIx: rank without size", kSlurmStep + EnvMap{{"PMIX_RANK", "3"}}, Launcher::kSlurm, 3, 4, 3},
      {"own variables first", kTorch + EnvMap{{"RINGBELL_RANK", "3"}, {"RINGBELL_WORLD", "4"}}, Launcher::kRingbell, 3,
       4, 3},
      {"own local rank",
       {{"RINGBELL_RANK", "1"}, {"RINGBELL_WORLD", "2"}, {"RINGBELL_LOCAL_RANK", "0"}},
       Launcher::kRingbell,
       1,
       2,
       0},
      {"forced mpi", kTorch + kOmpi + EnvMap{{"RINGBELL_LAUNCHER", "mpi"}}, Launcher::kMpi, 2, 4, 2},
      {"forced slurm", kTorch + kSlurmStep + EnvMap{{"RINGBELL_LAUNCHER", "slurm"}}, Launcher::kSlurm, 3, 4, 3},
      {"forced mpi, OMPI partial, PMI complete",
       {{"RINGBELL_LAUNCHER", "mpi"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       Launcher::kMpi,
       0,
       2,
       0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.title);
    try {
      const Launch launch = resolve(c.map);
      EXPECT_EQ(launcher_name(launch.launcher), std::string(launcher_name(c.launcher)));
      EXPECT_EQ(launch.rank, c.rank);
      EXPECT_EQ(launch.world, c.world);
      EXPECT_EQ(launch.local_rank, c.local_rank);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(LaunchEnvTest, ALosingSetIsNamedInOneLine) {
  EXPECT_EQ(resolve(kTorch).note, "");
  const std::string note = resolve(kTorch + kOmpi).note;
  EXPECT_NE(note.find("rank 1 of 2 from torchrun (RANK=1, WORLD_SIZE=2); ignored: Open MPI (OMPI_COMM_WORLD_RANK=2, "
                      "OMPI_COMM_WORLD_SIZE=4)"),
            std::string::npos)
      << note;
  EXPECT_EQ(note.find('\n'), std::string::npos);
}

TEST(LaunchEnvTest, NothingSetIsNeverASilentWorldOfOne) {
  EXPECT_FALSE(find_launch(Env(EnvMap{{"PATH", "/bin"}})).has_value());
  EXPECT_REFUSED((EnvMap{}), "no launcher", "ringbell run -n N");
}

TEST(LaunchEnvTest, APartialSetIsRefused) {
  EXPECT_REFUSED((EnvMap{{"RANK", "0"}}), "partial", "RANK is set but WORLD_SIZE is not");
  EXPECT_REFUSED((EnvMap{{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set but RANK is not");
  EXPECT_REFUSED((EnvMap{{"PMIX_RANK", "0"}}), "PMIX_RANK is set but PMIX_SIZE is not");
  EXPECT_REFUSED((EnvMap{{"OMPI_COMM_WORLD_RANK", "0"}}), "OMPI_COMM_WORLD_SIZE is not");
  EXPECT_REFUSED((kTorch + EnvMap{{"RINGBELL_RANK", "0"}}), "RINGBELL_RANK is set but RINGBELL_WORLD is not");
  EXPECT_REFUSED((EnvMap{{"RANK", "0"}, {"RINGBELL_LAUNCHER", "torch"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}),
                 "RANK is set but WORLD_SIZE is not");
  EXPECT_REFUSED((kTorch + EnvMap{{"RINGBELL_LAUNCHER", "mpi"}}), "RINGBELL_LAUNCHER='mpi'", "not set");
  EXPECT_REFUSED((kTorch + EnvMap{{"RINGBELL_LAUNCHER", "explicit"}}), "names no rank");
  EXPECT_REFUSED((kTorch + EnvMap{{"RINGBELL_LAUNCHER", "pdsh"}}), "one of explicit, ringbell, torch, mpi, slurm");
}

TEST(LaunchEnvTest, SlurmCountsOnlyInsideAStep) {
  for (const char* step : {"4294967291", "4294967290", "", "batch"}) {
    EXPECT_FALSE(find_launch(Env(kSlurmStep + EnvMap{{"SLURM_STEP_ID", step}})).has_value()) << step;
  }
  EnvMap batch = kSlurmStep;
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(find_launch(Env(batch)).has_value());
}

TEST(LaunchEnvTest, BadRanksAndWorldsAreRefused) {
  EXPECT_REFUSED((EnvMap{{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2 with WORLD_SIZE=2", "ranks go from 0 to 1");
  EXPECT_REFUSED((EnvMap{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK=-1");
  EXPECT_REFUSED((EnvMap{{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0", "1 to 8 ranks");
  EXPECT_REFUSED((EnvMap{{"RANK", "0"}, {"WORLD_SIZE", "9"}}), "WORLD_SIZE=9");
  EXPECT_REFUSED((EnvMap{{"RANK", "zero"}, {"WORLD_SIZE", "2"}}), "RANK='zero'");
  EXPECT_REFUSED((EnvMap{{"RANK", ""}, {"WORLD_SIZE", "2"}}), "RANK=''");
  EXPECT_REFUSED((EnvMap{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "5"}}), "LOCAL_RANK=5");
  EXPECT_REFUSED((EnvMap{{"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "2"}, {"RINGBELL_SESSION", "../x"}}),
                 "hexadecimal");
}

TEST(LaunchEnvTest, AWorldAcrossHostsIsRefused) {
  EXPECT_REFUSED((kTorch + EnvMap{{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4 but LOCAL_WORLD_SIZE=2", "several hosts");
  EXPECT_REFUSED((kTorch + EnvMap{{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}}), "several hosts");
  EXPECT_REFUSED((kTorch + EnvMap{{"GROUP_WORLD_SIZE", "2"}}), "GROUP_WORLD_SIZE=2");
  EXPECT_REFUSED((kOmpi + EnvMap{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "OMPI_COMM_WORLD_LOCAL_SIZE=2");
  EXPECT_REFUSED((kSlurmStep + EnvMap{{"SLURM_STEP_NUM_NODES", "2"}}), "SLURM_STEP_NUM_NODES=2");
}

TEST(LaunchEnvTest, AWorldOfOneThatHidesALargerOneIsRefused) {
  const EnvMap one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  EXPECT_REFUSED((one + kOmpi), "a world of 1", "Open MPI says 4 ranks", "RINGBELL_LAUNCHER=mpi");
  EXPECT_EQ(resolve(one + kOmpi + EnvMap{{"RINGBELL_LAUNCHER", "torch"}}).world, 1);
  EXPECT_EQ(resolve(one).world, 1);
  EXPECT_EQ(resolve(one + EnvMap{{"PMI_RANK", "1"}}).world, 1);
}

TEST(LaunchEnvTest, ArgumentsBeatEverything) {
  const Env env(kTorch);
  const Launch launch = resolve_launch(env, ExplicitLaunch{0, 3});
  EXPECT_EQ(launch.launcher, Launcher::kExplicit);
  EXPECT_EQ(launch.world, 3);
  EXPECT_NE(launch.note.find("ignored: torchrun"), std::string::npos);
  EXPECT_THROW((void)resolve_launch(env, ExplicitLaunch{3, 3}), Error);
  EXPECT_THROW((void)resolve_launch(env, ExplicitLaunch{0, 1}), Error);  // torch says 2
  EXPECT_EQ(resolve_launch(Env(kTorch + EnvMap{{"RINGBELL_LAUNCHER", "explicit"}}), ExplicitLaunch{0, 1}).world, 1);
  EXPECT_EQ(resolve_launch(Env(kTorch + EnvMap{{"RINGBELL_LAUNCHER", "torch"}}), ExplicitLaunch{0, 1}).world, 2);
}

TEST(LaunchEnvTest, TheSessionKeyIsTheJobsAndNotTheRanks) {
  const auto key = [](const EnvMap& map) { return resolve(map).session_key; };
  EXPECT_EQ(key(kTorch), key(kTorch + EnvMap{{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_NE(key(kTorch), key(kTorch + EnvMap{{"MASTER_PORT", "29512"}}));
  EXPECT_NE(key(kTorch), key(kTorch + EnvMap{{"TORCHELASTIC_RUN_ID", "x"}}));
  EXPECT_NE(key(kTorch + EnvMap{{"TORCHELASTIC_RESTART_COUNT", "0"}}),
            key(kTorch + EnvMap{{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_EQ(key(kOmpi), key(kOmpi + EnvMap{{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  EXPECT_NE(key(kOmpi), key(kOmpi + EnvMap{{"PMIX_NAMESPACE", "prterun-box-18@1"}}));
  EXPECT_NE(key(kSlurmStep), key(kSlurmStep + EnvMap{{"SLURM_STEP_ID", "1"}}));
  const EnvMap own = {
      {"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "2"}, {"RINGBELL_SESSION", "00112233445566778899aabbccddeeff"}};
  EXPECT_EQ(key(own), key(own + EnvMap{{"RINGBELL_RANK", "1"}, {"MASTER_PORT", "1"}}));
  EXPECT_TRUE(resolve(own).session_is_named);
  EXPECT_FALSE(resolve({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).session_is_named);
}

std::string id_refusal(const EnvMap& map) {
  try {
    static_cast<void>(unique_id_of_launch(resolve(map)));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchEnvTest, SeveralRanksWithoutAJobsNameAreRefusedWithTheRemedy) {
  const EnvMap sets[] = {
      {{"RINGBELL_RANK", "1"}, {"RINGBELL_WORLD", "2"}},
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"TORCHELASTIC_RESTART_COUNT", "0"}},
  };
  for (const EnvMap& set : sets) {
    const std::string text = id_refusal(set);
    EXPECT_NE(text.find("rank 1 of 2: the launch variables"), std::string::npos) << text;
    EXPECT_NE(text.find("the same RINGBELL_SESSION"), std::string::npos) << text;
    EXPECT_NE(text.find("ringbell run -n N"), std::string::npos) << text;
    // RINGBELL_SESSION names the job of any launcher that gives none.
    EnvMap one = set;
    one["RINGBELL_SESSION"] = "0123456789abcdef";
    EnvMap other = set;
    other["RINGBELL_SESSION"] = "0123456789abcdee";
    EXPECT_EQ(id_refusal(one), "");
    EXPECT_NE(resolve(one).session_key, resolve(other).session_key);
  }
  EXPECT_EQ(id_refusal(kTorch), "");
  EXPECT_EQ(id_refusal(kOmpi), "");
}

TEST(LaunchEnvTest, TwoLoneRanksWithoutANameShareNothing) {
  const EnvMap lone = {{"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "1"}};
  EXPECT_NE(unique_id_segment_name(unique_id_of_launch(resolve(lone))),
            unique_id_segment_name(unique_id_of_launch(resolve(lone))));
}

}  // namespace
}  // namespace ringbell::host
