// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// `ringbell clean`: what it says of every kind of object, what it removes, and that it takes nothing from a job that
// lives or starts. Each case in a /dev/shm of its own.
#include <cstdlib>
#include <functional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/private_shm.hpp"
#include "tests/support/program.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/set_up_process.hpp"
#include "tools/temporary_folder.hpp"

namespace ringbell::test {
namespace {

using host::Phase;
using host::Segment;
using host::set_up;
using host::unique_id_from_key;
using host::unique_id_segment_name;

std::string path_of(const UniqueId& id) { return "/dev/shm" + unique_id_segment_name(id); }

/// Gives a text at the first look that does not hold.
#define HOLDS(condition, text)                                                                                     \
  do {                                                                                                             \
    if (!(condition)) return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition ": " + (text); \
  } while (false)

class CleanTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_enter_private_shm()) GTEST_SKIP() << "no leave for mount namespaces";
  }
  static void in_private_shm(const std::function<std::string()>& body) {
    const std::string temporary = make_folder();
    RankProcesses house(1, [&](int) {
      setenv("TMPDIR", temporary.c_str(), 1);
      return enter_private_shm() ? body() : std::string("no mount");
    });
    const ProcessResult result = house.wait(0);
    EXPECT_EQ(result.code, 0) << "signal " << result.signal << ": " << result.text;
    remove_folder(temporary);
  }
};

/// A file under a fresh id's name, old enough to be judged.
UniqueId plant(const std::string& content, mode_t mode = 0600) {
  const UniqueId id = unique_id_create();
  const int fd = open(path_of(id).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  if (fd < 0 || write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      fchmod(fd, mode) != 0 || futimens(fd, old) != 0) {
    throw std::runtime_error("cannot plant a file");
  }
  close(fd);
  return id;
}

std::string header_of_version(std::uint32_t version) {
  host::SegmentHeader header{};
  header.magic = host::kSegmentMagic;
  header.layout_version = version;
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

/// Rank 0 of a pair, killed in the phase.
UniqueId leave_stale(Phase phase) {
  const UniqueId id = unique_id_create();
  host::Rank dead([&] {
    set_up(id, 0, 2, host::kGeometry, [&](Segment&, Phase at) {
      if (at == phase) raise(SIGKILL);
    });
  });
  dead.result();
  return id;
}

std::string line_of(const std::string& out, const UniqueId& id) {
  for (const std::string& line : lines_of(out)) {
    if (line.find(path_of(id) + " ") != std::string::npos) return line;
  }
  return "no line for " + path_of(id) + " in: " + out;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(CleanTest, TellsEveryKindAndRemovesOnlyWhatIsDead) {
  in_private_shm([]() -> std::string {
    const UniqueId stale[] = {leave_stale(Phase::kClaimed), leave_stale(Phase::kWritten)};
    const UniqueId empty = plant("");
    const UniqueId sized = plant(std::string(8192, '\0'));
    const UniqueId older = plant(header_of_version(1));
    const UniqueId cut = plant(header_of_version(host::kSegmentLayoutVersion).substr(0, 64));
    const UniqueId garbage = plant("this is not a segment at all");
    const UniqueId open_to_all = plant(header_of_version(1), 0666);
    const UniqueId link = unique_id_create();
    HOLDS(symlink("/etc/passwd", path_of(link).c_str()) == 0, "");
    const std::string odd = "/dev/shm/ringbell-" + std::to_string(geteuid()) + "-mine";
    const std::string unrelated = "/dev/shm/something-else";
    for (const std::string& path : {odd, unrelated}) close(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const UniqueId foreign = plant(header_of_version(1));
    const bool root = geteuid() == 0 && chown(path_of(foreign).c_str(), 65534, 65534) == 0;
    const UniqueId live = unique_id_create();
    host::Rank zero([&] { set_up(live, 0, 2); });
    HOLDS(eventually([&] { return file_exists(path_of(live)); }), "");

    const auto before = shm_entries();
    const Outcome dry = run_program("$RINGBELL clean --dry-run");
    HOLDS(dry.code == 1, dry.out + dry.err);
    HOLDS(shm_entries() == before, dry.out);
    const std::size_t named = before.size() - 1;  // not the unrelated one
    HOLDS(lines_of(dry.out).size() == named, dry.out);
    for (const UniqueId& id : stale)
      HOLDS(has(line_of(dry.out, id), "would remove ") && has(dry.out, "stale: gone: rank 0 (pid "), dry.out);

    const Outcome clean = run_program("$RINGBELL clean");
    HOLDS(clean.code == 1 && clean.err.empty(), clean.out + clean.err);
    const auto told = [&](const UniqueId& id, const std::string& fate, const std::string& words) {
      const std::string line = line_of(clean.out, id);
      return line.starts_with(fate) && has(line, words) && file_exists(path_of(id)) == (fate == "kept") ? "" : line;
    };
    for (const std::string& wrong :
         {std::string(told(stale[0], "removed", "stale")), std::string(told(stale[1], "removed", "stale")),
          std::string(told(empty, "removed", "half-made: its maker died")),
          std::string(told(sized, "removed", "half-made: its maker died")),
          std::string(told(older, "removed", "layout version 1, this library's is 2")),
          std::string(told(cut, "removed", "stale")),
          std::string(told(garbage, "kept", "not ours: " + path_of(garbage) + " is not a ringbell segment")),
          std::string(told(open_to_all, "kept", "not ours: " + path_of(open_to_all) + " has mode 0666")),
          std::string(told(link, "kept", "symbolic link")),
          std::string(root ? told(foreign, "kept", "foreign: " + path_of(foreign) + " belongs to uid 65534") : ""),
          std::string(told(live, "kept", "live: its rank 0 is alive (pid " + std::to_string(zero.pid()) + ")"))}) {
      HOLDS(wrong.empty(), wrong);
    }
    HOLDS(has(clean.out, "kept " + odd) && file_exists(odd) && file_exists(unrelated), clean.out);

    host::Rank one([&] { set_up(live, 1, 2); });  // the live one goes on as if nothing had been
    HOLDS(one.result().empty() && zero.result().empty(), "the live session did not come up");
    for (const std::string& path : shm_entries()) unlink(path.c_str());
    const Outcome nothing = run_program("$RINGBELL clean");
    HOLDS(nothing.code == 0 && nothing.out.empty() && nothing.err.empty(), nothing.out + nothing.err);
    return "";
  });
}

TEST_F(CleanTest, OneSessionByItsNameOrByItsVariableAndNoOther) {
  in_private_shm([]() -> std::string {
    const std::string token = "00112233445566778899aabbccddeeff";
    const UniqueId by_name = leave_stale(Phase::kClaimed);
    const UniqueId other = leave_stale(Phase::kClaimed);
    const std::string job =
        "exec $RINGBELL run -n 2 --device cpu -- sh -c 'test $RANK = 0 || exec sleep 30; RINGBELL_SESSION=" + token +
        " exec $RINGBELL perf --sizes 8'";
    Running run(job, 30);
    HOLDS(eventually([&] { return shm_entries().size() == 3; }), "no segment of the job");
    const Outcome live = run_program("$RINGBELL clean --session " + token);
    HOLDS(live.code == 0 && live.out.starts_with("kept ") && has(live.out, "live: its rank 0"), live.out + live.err);
    for (const pid_t rank : children_of(run.pid())) kill(rank, SIGKILL);
    run.wait();
    const Outcome by_token = run_program("$RINGBELL clean --session " + token);
    HOLDS(by_token.code == 0 && by_token.out.starts_with("removed ") && lines_of(by_token.out).size() == 1,
          by_token.out + by_token.err);
    HOLDS(shm_entries().size() == 2, "");
    for (const std::string& name : {path_of(by_name), unique_id_segment_name(other).substr(1)}) {
      const Outcome one = run_program("$RINGBELL clean --session " + name);
      HOLDS(one.code == 0 && one.out.starts_with("removed ") && lines_of(one.out).size() == 1, one.out + one.err);
      const Outcome again = run_program("$RINGBELL clean --session " + name);
      HOLDS(again.code == 0 && again.out.empty(), again.out + again.err);
    }
    HOLDS(shm_entries().empty(), "");
    const Outcome bad = run_program("$RINGBELL clean --session 'not hex'");
    HOLDS(bad.code == 64 && has(bad.err, "--session") && has(bad.err, "8 to 64 hexadecimal digits"), bad.err);
    return "";
  });
}

// Its locks were dropped by a stray open and close, it is stopped, and its pid means nothing here: only the kernel
// knows that it still has the file.
TEST_F(CleanTest, AStoppedRankOfAnotherPidNamespaceThatLostItsLockIsUnclearAndKept) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a PID namespace (root)";
  in_private_shm([]() -> std::string {
    const UniqueId id = unique_id_create();
    SharedWords words(1);
    host::Rank outer([&] {
      if (unshare(CLONE_NEWPID) != 0) _exit(90);
      host::Rank zero([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // it would outlive a test that fails
        set_up(id, 0, 2, host::kGeometry, [&](Segment&, Phase at) {
          if (at != Phase::kClaimed) return;
          close(open(path_of(id).c_str(), O_RDWR | O_CLOEXEC));
          words[0] = 1;
          pause();
        });
      });
      zero.result();
    });
    HOLDS(words.await(0, 1), "no segment");
    // A cleaner in a PID namespace of its own sees nobody by /proc either.
    const Outcome inner = run_program("sleep 0.2; unshare --pid --fork --mount-proc $RINGBELL clean");
    HOLDS(inner.code == 1 && inner.out.starts_with("kept ") && has(inner.out, "unclear: a process that cannot be seen"),
          inner.out + inner.err);
    const Outcome outside = run_program("$RINGBELL clean");
    HOLDS(outside.code == 0 && outside.out.starts_with("kept ") && has(outside.out, " has it open"),
          outside.out + outside.err);
    outer.signal(SIGKILL);
    for (const pid_t pid : children_of(outer.pid())) kill(pid, SIGKILL);
    outer.result();
    HOLDS(eventually([&] {
            run_program("$RINGBELL clean");
            return shm_entries().empty();
          }),
          "still there");
    return "";
  });
}

// A name that a crashed job left is taken by the next one while cleaners run all the time: the new job never loses it.
TEST_F(CleanTest, JobsThatReuseTheNameOfACrashedOneStartWhileCleanersRun) {
  in_private_shm([]() -> std::string {
    Running cleaners("for i in 1 2; do while :; do $RINGBELL clean > /dev/null || exit; done & done; wait", 100);
    const UniqueId id = unique_id_from_key("clean_test");
    for (int round = 0; round < 25; ++round) {
      host::Rank dead([&] {
        set_up(id, 0, 2, host::kGeometry, [](Segment&, Phase at) {
          if (at == Phase::kClaimed) raise(SIGKILL);
        });
      });
      dead.result();
      host::Rank one([&] { set_up(id, 1, 2); });
      host::Rank zero([&] {
        set_up(id, 0, 2, host::kGeometry, [](Segment&, Phase at) {
          if (at == Phase::kClaimed) usleep(20000);  // cleaners get a good look
        });
      });
      const std::string zero_text = zero.result();
      const std::string one_text = one.result();
      HOLDS(zero_text.empty() && one_text.empty(),
            "round " + std::to_string(round) + ": " + zero_text + " | " + one_text);
    }
    HOLDS(is_alive(cleaners.pid()), "a cleaner failed");
    HOLDS(shm_entries().empty(), "");
    return "";
  });
}

TEST_F(CleanTest, ANameRemovedWhileTheJobRunsOrAfterAllHaveComeHarmsNothing) {
  in_private_shm([]() -> std::string {
    const UniqueId id = unique_id_create();
    SharedWords words(1);
    RankProcesses ranks(2, [&](int rank) -> std::string {
      set_up(id, rank, 2, host::kGeometry, [&](Segment& segment, Phase at) {
        if (at != Phase::kClaimed) return;
        while (!segment.is_claimed(1 - rank)) usleep(500);
        if (rank == 0) unlink(path_of(id).c_str());
      });
      Communicator comm(unique_id_from_key("the next of that name"), rank, 2, cpu_config());
      for (int call = 0; call < 200; ++call) {
        std::int64_t value = call;
        if (std::string text = wait_ok(comm, comm.all_reduce(&value, &value, 1, DType::kInt64)); !text.empty())
          return text;
        if (value != 2 * call) return "wrong sum";
        if (rank == 0 && call == 100) run_program("rm -f /dev/shm/ringbell-*; $RINGBELL clean");
      }
      return "";
    });
    for (const ProcessResult& result : ranks.wait_all()) HOLDS(result.code == 0, result.text);
    return "";
  });
}

TEST_F(CleanTest, FoldersOfAKilledPerfGoAndThoseOfALiveOneStay) {
  in_private_shm([]() -> std::string {
    std::string path;
    {
      const tools::TemporaryFolder live;
      path = live.path();
      HOLDS(file_exists(path), path);
      std::string dead = path;
      for (std::size_t i = dead.size() - 6; i < dead.size(); ++i) dead[i] = dead[i] == 'a' ? 'b' : 'a';
      HOLDS(mkdir(dead.c_str(), 0700) == 0, dead);
      close(open((dead + "/log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      HOLDS(mkdir((path + "-else").c_str(), 0700) == 0, "");
      const Outcome early = run_program("$RINGBELL clean");
      HOLDS(early.code == 0 && has(early.out, "kept " + dead + " ") && has(early.out, "too early to tell"), early.out);
      sleep_seconds(2.1);
      const Outcome clean = run_program("$RINGBELL clean");
      HOLDS(clean.code == 0 && lines_of(clean.out).size() == 2, clean.out + clean.err);
      HOLDS(has(clean.out, "kept " + path + " ") && has(clean.out, "live: the process that made it locks it"),
            clean.out);
      HOLDS(has(clean.out, "removed " + dead + " ") && !file_exists(dead) && file_exists(path + "-else"), clean.out);
    }
    HOLDS(!file_exists(path), path);
    return "";
  });
}

}  // namespace
}  // namespace ringbell::test
