// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/own_core.hpp"

#include <pthread.h>
#include <sched.h>

namespace ringbell::tools {

int core_of_rank(const std::vector<int>& allowed, int rank, int world) {
  constexpr int kCoresPerRank = 4;
  const int share = static_cast<int>(allowed.size()) / world;
  if (share < kCoresPerRank) return -1;
  // Not the first of its share: core 0 takes most interrupts.
  return allowed[static_cast<std::size_t>(rank * share + share / 2)];
}

void stay_on_own_core(int rank, int world) noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return;
  try {
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) cores.push_back(core);
    }
    const int core = core_of_rank(cores, rank, world);
    if (core < 0) return;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<std::size_t>(core), &own);
    (void)pthread_setaffinity_np(pthread_self(), sizeof own, &own);  // as it was, if the system refuses
  } catch (...) {
    // No memory for a list: as it was.
  }
}

}  // namespace ringbell::tools
