// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: label=ci timeout=900
//
// Sessions made and destroyed, and sessions that crash, again and again: memory, mappings, pinned and locked pages,
// descriptors, threads and /dev/shm stay flat. RINGBELL_TEST_CYCLES=N chooses how many of each instead of 1000; 10000
// take some minutes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/support/private_shm.hpp"
#include "tests/support/program.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

std::size_t cycles() {
  const char* const text = std::getenv("RINGBELL_TEST_CYCLES");
  return text == nullptr ? 1000 : std::strtoull(text, nullptr, 10);
}

/// What this process and its /dev/shm hold.
struct Held {
  std::size_t descriptors = 0, threads = 0, file_maps = 0, anonymous_maps = 0;
  std::size_t resident_kib = 0, mapped_kib = 0, locked_kib = 0, pinned_kib = 0;
  std::size_t shm_entries = 0, shm_bytes = 0;
};

Held held() {
  Held now;
  now.descriptors = open_fds();
  now.threads = thread_count();
  const MapCount maps = map_count();
  now.file_maps = maps.files;
  now.anonymous_maps = maps.anonymous;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t kib = 0;
    words >> name >> kib;
    if (name == "VmRSS:") now.resident_kib = kib;
    if (name == "VmSize:") now.mapped_kib = kib;
    if (name == "VmLck:") now.locked_kib = kib;
    if (name == "VmPin:") now.pinned_kib = kib;
  }
  now.shm_entries = shm_entries().size();
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) now.shm_bytes = (shm.f_blocks - shm.f_bfree) * shm.f_frsize;
  return now;
}

std::string text_of(const Held& now) {
  std::ostringstream text;
  text << now.descriptors << " descriptors, " << now.threads << " threads, " << now.file_maps << " mapped files, "
       << now.anonymous_maps << " anonymous maps, " << now.resident_kib << " KiB resident, " << now.mapped_kib
       << " KiB mapped, " << now.locked_kib << " KiB locked, " << now.pinned_kib << " KiB pinned, " << now.shm_entries
       << " entries and " << now.shm_bytes << " bytes in /dev/shm";
  return text.str();
}

/// Empty when nothing has grown. Allocators keep some of what they had: less than a page a cycle, and not more maps.
std::string growth(const Held& before, const Held& after, std::size_t rounds) {
  const std::size_t room_kib = 2048 + (is_sanitized() ? 64 * rounds : 0);
  const std::size_t room_maps = 8 + (is_sanitized() ? rounds / 2 : 0);
  const bool flat = after.descriptors == before.descriptors && after.threads == before.threads &&
                    after.file_maps == before.file_maps && after.anonymous_maps <= before.anonymous_maps + room_maps &&
                    after.resident_kib <= before.resident_kib + room_kib &&
                    (is_sanitized() || after.mapped_kib <= before.mapped_kib + room_kib) &&
                    after.locked_kib == before.locked_kib && after.pinned_kib == before.pinned_kib &&
                    after.shm_entries == before.shm_entries && after.shm_bytes == before.shm_bytes;
  return flat ? "" : text_of(before) + " became " + text_of(after);
}

void report(const char* what, std::size_t rounds, const Held& before, const Held& after) {
  std::printf("%zu %s: before %s\n", rounds, what, text_of(before).c_str());
  std::printf("%zu %s: after  %s\n", rounds, what, text_of(after).c_str());
  std::fflush(stdout);
}

class CyclesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_enter_private_shm()) GTEST_SKIP() << "no leave for mount namespaces";
  }
  static void in_private_shm(const std::function<std::string()>& body) {
    const auto in_house = [&](int) -> std::string {
      mallopt(M_ARENA_MAX, 1);  // each arena that threads happen to make reserves 64 MiB and stays
      return enter_private_shm() ? body() : std::string("no mount");
    };
    RankProcesses house(1, in_house, 850);
    const ProcessResult result = house.wait(0);
    EXPECT_EQ(result.code, 0) << "signal " << result.signal << ": " << result.text;
  }
};

std::string sum_once(Communicator& comm) {
  std::int64_t value = 1;
  if (std::string text = wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kInt64)); !text.empty()) return text;
  return value == comm.world() ? "" : "wrong sum";
}

TEST_F(CyclesTest, OfCreateAndDestroyLeaveEverythingFlat) {
  in_private_shm([]() -> std::string {
    const auto cycle = [] {
      const auto texts = run_ranks(2, cpu_config(), [](Communicator& comm) { return sum_once(comm); });
      return texts[0] + texts[1];
    };
    for (int i = 0; i < 50; ++i) {
      if (std::string text = cycle(); !text.empty()) return text;
    }
    const Held before = held();
    for (std::size_t i = 0; i < cycles(); ++i) {
      if (std::string text = cycle(); !text.empty()) return text;
    }
    const Held after = held();
    report("cycles", cycles(), before, after);
    return growth(before, after, cycles());
  });
}

// The launcher of a service that dies and is started again, under a few names in turn: it forks a process with two
// ranks, which is killed at a seeded instant of set-up, call or tear-down.
TEST_F(CyclesTest, OfCrashesAndRestartsUnderTheSameNamesLeaveEverythingFlatAndTheNextStartWorks) {
  in_private_shm([]() -> std::string {
    constexpr std::size_t kNames = 32;  // a dead one is taken again when its last heartbeat is old
    std::uint64_t random = 1;
    std::vector<UniqueId> ids(kNames);
    for (UniqueId& id : ids) id = unique_id_create();
    std::size_t killed = 0;
    const auto both_ranks = [&](const UniqueId& id) {
      const auto texts = run_threads(2, [&](int rank) {
        Communicator comm(id, rank, 2, cpu_config());
        return sum_once(comm);
      });
      return texts[0] + texts[1];
    };
    const auto crash = [&](std::size_t i) -> std::string {
      random = random * 6364136223846793005u + 1442695040888963407u;
      RankProcesses service(1, [&](int) { return both_ranks(ids[i % kNames]); });
      sleep_s(static_cast<double>((random >> 33) % 10000) * 1e-6);
      service.signal(0, SIGKILL);
      const ProcessResult result = service.wait(0);
      if (result.signal == SIGKILL) ++killed;
      return result.signal == SIGKILL || result.code == 0 ? "" : result.text;
    };
    const auto restart_all = [&]() -> std::string {
      for (const UniqueId& id : ids) {
        RankProcesses service(1, [&](int) { return both_ranks(id); });
        if (const ProcessResult result = service.wait(0); result.code != 0) return result.text;
      }
      return "";
    };
    for (std::size_t i = 0; i < 50; ++i) {
      if (std::string text = crash(i); !text.empty()) return text;
    }
    if (std::string text = restart_all(); !text.empty()) return text;
    const Held before = held();
    killed = 0;
    std::size_t most_entries = 0;
    for (std::size_t i = 0; killed < cycles(); ++i) {
      if (i > 4 * cycles()) return "only " + std::to_string(killed) + " were killed in time";
      if (std::string text = crash(i); !text.empty()) return text;
      most_entries = std::max(most_entries, shm_entries().size());
    }
    if (std::string text = restart_all(); !text.empty()) return text;
    const Held after = held();
    report("crashes", killed, before, after);
    std::printf("at most %zu names in /dev/shm between them\n", most_entries);
    std::fflush(stdout);
    if (most_entries > kNames)
      return std::to_string(most_entries) + " names for " + std::to_string(kNames) + " sessions";
    return growth(before, after, cycles());
  });
}

}  // namespace
}  // namespace ringbell::test
