// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
// ringbell-test: timeout=120
//
// `ringbell why` and `top` beside ranks that hang, are stopped, traced, late, gone or disagree: whom they name, how
// fast, and what they say of bad input; dumps of ranks, and that they never cost a call.
#include <fstream>
#include <functional>

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/program.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << "'" << (part) << "' in: " << (text)

std::string pid_text(const RankProcesses& ranks, int rank) { return std::to_string(ranks.pid(rank)); }

std::string last_line(const Outcome& outcome) {
  const auto lines = lines_of(outcome.out);
  return lines.empty() ? std::string() : lines.back();
}

Outcome why(const std::string& subject) {
  const Stopwatch watch;
  Outcome outcome = run_program("$RINGBELL why " + subject);
  EXPECT_LT(watch.seconds(), 1 * patience()) << outcome.out << outcome.err;
  return outcome;
}

/// The first line with these words, "" when there is none.
std::string line_with(const std::string& text, const std::string& words) {
  for (const std::string& line : lines_of(text)) {
    if (has(line, words)) return line;
  }
  return "";
}

/// Asks until the last line has these words, and what it tells of rank 0 the other ones: a wait is told once it has
/// lasted a millisecond, and ranks share the cores.
Outcome why_once_told(const std::string& subject, const std::string& words, const std::string& of_rank_0 = "") {
  Outcome outcome;
  eventually(
      [&] {
        outcome = why(subject);
        return has(last_line(outcome), words) && has(line_with(outcome.out, "rank 0: "), of_rank_0);
      },
      10);
  return outcome;
}

Ticket start_call(Communicator& comm, std::vector<float>& data, const CallOptions& options = {}) {
  return comm.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, ReduceOp::kSum, options);
}

std::string make_call(Communicator& comm) {
  std::vector<float> data(1000, 1);
  return wait_ok(comm, start_call(comm, data));
}

void expect_success(RankProcesses& ranks) {
  int rank = 0;
  for (const ProcessResult& result : ranks.wait_all()) {
    EXPECT_EQ(result.code, 0) << "rank " << rank << " signal " << result.signal << ": " << result.text;
    ++rank;
  }
}

/// Words of the ranks of a test.
enum : std::size_t { kReady, kGo, kWords };
constexpr int kWorld = 3;

/// Three ranks in call 2. Rank 1 has made its own when `hold_up` runs; rank 2 makes its after that. `look` runs while
/// all wait for rank 1, `release` lets it go on.
void hold_up_in_a_call(const std::function<void(RankProcesses&)>& hold_up,
                       const std::function<void(RankProcesses&)>& look,
                       const std::function<void(RankProcesses&)>& release) {
  const UniqueId id = unique_id_create();
  SharedWords words(kWords);
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    Communicator comm(id, rank, kWorld, cpu_config());
    for (int call = 0; call < 2; ++call) {
      if (std::string text = make_call(comm); !text.empty()) return text;
    }
    std::vector<float> data(100000, 1);
    Ticket ticket;
    if (rank != 2) ticket = start_call(comm, data);
    if (rank != 2 && comm.wait(ticket, 0.05) != Status::kAgain) return "did not wait";
    ++words[kReady];
    if (!words.await(kGo, 1)) return "not told";
    if (rank == 2) ticket = start_call(comm, data);
    return wait_ok(comm, ticket);
  });
  ASSERT_TRUE(words.await(kReady, kWorld));
  hold_up(ranks);
  words[kGo] = 1;
  look(ranks);
  release(ranks);
  expect_success(ranks);
}

TEST(Why, NamesARankThatIsStoppedInTheMiddleOfACallWithinASecond) {
  hold_up_in_a_call([](RankProcesses& ranks) { ranks.signal(1, SIGSTOP); },
                    [](RankProcesses& ranks) {
                      const Outcome told = why_once_told(pid_text(ranks, 0), "ranks 0 and 2 wait for it",
                                                         "host in wait for call 2 since ");
                      EXPECT_EQ(told.code, 1) << told.err;
                      EXPECT_HAS(last_line(told), "culprit: rank 1 (pid " + pid_text(ranks, 1) + "): in call 2");
                      EXPECT_HAS(last_line(told), "is stopped; kill -CONT " + pid_text(ranks, 1));
                      EXPECT_EQ(lines_of(told.out).size(), 2u + kWorld) << told.out;
                      EXPECT_HAS(told.out, "rank 0: pid " + pid_text(ranks, 0) +
                                               " running; completed call 1, in call 2 float32 sum count 100000 (ring ");
                      EXPECT_HAS(told.out, "host in wait for call 2 since ");
                      EXPECT_HAS(told.out, "rank 1: pid " + pid_text(ranks, 1) + " stopped; ");
                      EXPECT_HAS(told.out, "of rank 1; ");
                    },
                    [](RankProcesses& ranks) { ranks.signal(1, SIGCONT); });
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  DIR* const dir = opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  while (const dirent* entry = dir == nullptr ? nullptr : readdir(dir)) {
    if (entry->d_name[0] != '.') threads.push_back(std::atoi(entry->d_name));
  }
  if (dir != nullptr) closedir(dir);
  return threads;
}

TEST(Why, NamesARankThatADebuggerHoldsWithinASecond) {
  std::vector<pid_t> traced;
  const auto attach = [&](RankProcesses& ranks) {
    for (const pid_t thread : threads_of(ranks.pid(1))) {
      if (ptrace(PTRACE_ATTACH, thread, nullptr, nullptr) != 0) continue;
      traced.push_back(thread);
      waitpid(thread, nullptr, __WALL);
    }
  };
  const auto detach = [&](RankProcesses&) {
    for (const pid_t thread : traced) ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  };
  hold_up_in_a_call(
      attach,
      [&](RankProcesses& ranks) {
        if (traced.empty()) GTEST_SKIP() << "no leave to trace";
        const Outcome told = why_once_told(pid_text(ranks, 2), "ranks 0 and 2 wait for it");
        EXPECT_EQ(told.code, 1) << told.err;
        EXPECT_HAS(last_line(told), "culprit: rank 1 (pid " + pid_text(ranks, 1) + "): in call 2");
        EXPECT_HAS(last_line(told), "stopped by a debugger, pid " + std::to_string(getpid()));
        EXPECT_HAS(told.out, " traced by pid " + std::to_string(getpid()) + "; ");
      },
      detach);
}

/// Ranks make call 0; then all but rank 2 make another. `look` runs while they wait; rank 2 does `at_last`.
void leave_out_a_call(const std::function<void(RankProcesses&)>& look,
                      const std::function<std::string(Communicator&)>& at_last) {
  const UniqueId id = unique_id_create();
  SharedWords words(kWords);
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    Communicator comm(id, rank, kWorld, cpu_config());
    if (std::string text = make_call(comm); !text.empty()) return text;
    ++words[kReady];
    if (rank == 2) return words.await(kGo, 1) ? at_last(comm) : "not told";
    std::vector<float> data(1000, 1);
    const Status status = comm.wait(start_call(comm, data));
    return status == Status::kOk || status == Status::kPeerLost ? "" : comm.last_error();
  });
  ASSERT_TRUE(words.await(kReady, kWorld));
  look(ranks);
  words[kGo] = 1;
  expect_success(ranks);
}

void expect_call_1_missed(RankProcesses& ranks) {
  const Outcome told = why_once_told(pid_text(ranks, 0), "ranks 0 and 1 wait for it", "host in wait for call 1 since ");
  EXPECT_EQ(told.code, 1) << told.err;
  EXPECT_HAS(last_line(told), "culprit: rank 2 (pid " + pid_text(ranks, 2) +
                                  "): it has not made call 1 (float32 sum "
                                  "count 1000 (oneshot ");
  EXPECT_HAS(last_line(told), "its last was call 0; ranks 0 and 1 wait for it");
  EXPECT_HAS(told.out,
             "rank 2: pid " + pid_text(ranks, 2) + " running; completed call 0, no call queued; host not in wait");
  EXPECT_HAS(told.out, "for the header of rank 2");
}

TEST(Why, NamesALateRankWithinASecondAndNobodyOnceItHasCome) { leave_out_a_call(expect_call_1_missed, make_call); }

TEST(Why, NamesARankThatMissesACallWithinASecond) {
  // It leaves without it; the others are told that it has left.
  leave_out_a_call(expect_call_1_missed, [](Communicator&) { return std::string(); });
}

TEST(Why, SaysThatNobodyWaitsWhileCallsGoOnAndTakesNothingFromThem) {
  const UniqueId id = unique_id_create();
  SharedWords words(kWords);
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    Communicator comm(id, rank, kWorld, cpu_config());
    ++words[kReady];
    // All ranks make the same number of calls: rank 0 says when it is enough.
    for (float more = 1; more != 0;) {
      more = rank == 0 && words[kGo] != 0 ? 0 : 1;
      if (rank != 0) more = 0;
      if (std::string text = wait_ok(comm, comm.all_reduce(&more, &more, 1, DType::kFloat32)); !text.empty())
        return text;
    }
    return "";
  });
  ASSERT_TRUE(words.await(kReady, kWorld));
  sleep_s(0.1);
  for (int look = 0; look < 10; ++look) {
    const Outcome told = why(pid_text(ranks, look % kWorld));
    // A rank that gets no core for longer than the two looks are apart is waited for.
    if (told.code == 1) continue;
    EXPECT_EQ(told.code, 0) << told.out << told.err;
    EXPECT_EQ(last_line(told), "nobody waits") << told.out;
  }
  words[kGo] = 1;
  expect_success(ranks);
}

TEST(Why, NamesBothCallsOfAMismatchWhileTheRanksLiveAndFromTheirDumps) {
  const std::string folder = make_folder();
  for (int world : {2, 3}) {
    const UniqueId id = unique_id_create();
    SharedWords words(kWords);
    RankProcesses ranks(world, [&](int rank) -> std::string {
      setenv("RINGBELL_DUMP_DIR", folder.c_str(), 1);
      Communicator comm(id, rank, world, cpu_config());
      for (int call = 0; call < 300; ++call) {
        if (std::string text = make_call(comm); !text.empty()) return text;
      }
      std::vector<float> data(rank == 1 ? 200 : 100, 1);
      CallOptions options;
      options.tag = 7;
      const Status status = comm.wait(start_call(comm, data, options));
      ++words[kReady];
      if (!words.await(kGo, 1)) return "not told";
      return status == Status::kMismatch ? "" : comm.last_error();
    });
    ASSERT_TRUE(words.await(kReady, static_cast<std::uint64_t>(world)));
    const std::string dumps = folder + "/*.json";
    for (const Outcome& told : {why(pid_text(ranks, 0)), why(dumps)}) {
      EXPECT_EQ(told.code, 2) << told.out << told.err;
      const std::string line = last_line(told);
      EXPECT_HAS(line, world == 2 ? "culprit: ranks 0 and 1 differ in call 300: "
                                  : "culprit: rank 1 differs from the others in call 300: ");
      EXPECT_HAS(line, world == 2 ? "rank 0 made it as float32 sum count 100 (oneshot "
                                  : "ranks 0 and 2 made it as float32 sum count 100 (oneshot ");
      EXPECT_HAS(line, "rank 1 made it as float32 sum count 200 (oneshot ");
    }
    const Outcome merged = why(dumps);
    EXPECT_HAS(merged.out, "first difference: call 300, rank 0: float32 sum count 100 (oneshot ");
    EXPECT_HAS(merged.out, ") tag 7, rank 1: float32 sum count 200 (oneshot ");
    // One dump alone still names both.
    const Outcome alone = why(folder + "/*rank0*.json");
    EXPECT_EQ(alone.code, 2) << alone.err;
    EXPECT_HAS(alone.out, "rank 1: no dump given");
    EXPECT_HAS(last_line(alone), "has count 200");
    words[kGo] = 1;
    expect_success(ranks);
    EXPECT_EQ(run_program("rm " + dumps).code, 0);
  }
  remove_folder(folder);
}

TEST(Why, NamesAKilledRankByItsPidAndFromTheDumpsOfTheOthers) {
  const UniqueId id = unique_id_create();
  const std::string folder = make_folder();
  SharedWords words(kWords);
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    setenv("RINGBELL_DUMP_DIR", folder.c_str(), 1);
    Communicator comm(id, rank, kWorld, cpu_config());
    if (std::string text = make_call(comm); !text.empty()) return text;
    ++words[kReady];
    if (rank == 2) pause();
    std::vector<float> data(1000, 1);
    const Status status = comm.wait(start_call(comm, data));
    ++words[kReady];
    if (!words.await(kGo, 1)) return "not told";
    return status == Status::kPeerLost ? "" : comm.last_error();
  });
  ASSERT_TRUE(words.await(kReady, kWorld));
  ranks.signal(2, SIGKILL);
  ASSERT_TRUE(words.await(kReady, kWorld + 2));
  ranks.wait(2);
  const Outcome told = why(pid_text(ranks, 2));
  EXPECT_EQ(told.code, 2) << told.err;
  EXPECT_HAS(last_line(told), "culprit: rank 2 (pid " + pid_text(ranks, 2) + "): ");
  EXPECT_HAS(last_line(told), "its process is gone");
  EXPECT_HAS(told.out, "rank 2: pid " + pid_text(ranks, 2) + " gone; completed call 0");
  const Outcome merged = why(folder + "/*.json");
  EXPECT_EQ(merged.code, 2) << merged.err;
  EXPECT_HAS(last_line(merged), "culprit: rank 2: ");
  EXPECT_HAS(merged.out, "rank 2: no dump given");
  words[kGo] = 1;
  for (int rank : {0, 1}) EXPECT_EQ(ranks.wait(rank).code, 0) << ranks.wait(rank).text;
  remove_folder(folder);
}

TEST(Why, NamesTheRankThatHasNotComeToSetUp) {
  const UniqueId id = unique_id_create();
  SharedWords words(kWords);
  RankProcesses ranks(kWorld, [&](int rank) -> std::string {
    ++words[kReady];
    if (rank == 1 && !words.await(kGo, 1)) return "not told";
    Communicator comm(id, rank, kWorld, cpu_config());
    return make_call(comm);
  });
  ASSERT_TRUE(words.await(kReady, kWorld));
  const Outcome told = why_once_told(pid_text(ranks, 0), "rank 1 is waited for in set-up; rank 1 has not come");
  EXPECT_EQ(told.code, 1) << told.err;
  EXPECT_HAS(last_line(told), "culprit: rank 1 is waited for in set-up; rank 1 has not come");
  EXPECT_HAS(told.out, "rank 1: no process has come");
  words[kGo] = 1;
  expect_success(ranks);
}

TEST(Why, NamesARankThatKeepsItsOwnWorkerParked) {
  const UniqueId id = unique_id_create();
  SharedWords words(kWords);
  RankProcesses ranks(2, [&](int rank) -> std::string {
    Communicator comm(id, rank, 2, cpu_config());
    if (std::string text = make_call(comm); !text.empty()) return text;
    std::vector<float> data(1000, 1);
    Ticket ticket;
    {
      std::optional<ParkedScope> scope;
      if (rank == 1) scope.emplace(comm);
      ticket = start_call(comm, data);
      ++words[kReady];
      if (!words.await(kGo, 1)) return "not told";
    }
    return wait_ok(comm, ticket);
  });
  ASSERT_TRUE(words.await(kReady, 2));
  const Outcome told = why_once_told(pid_text(ranks, 0), "rank 0 waits for it");
  EXPECT_EQ(told.code, 1) << told.err;
  EXPECT_HAS(last_line(told), "culprit: rank 1 (pid " + pid_text(ranks, 1) +
                                  "): it keeps its own worker parked (ParkedScope, park_and_stay) with call 1 queued");
  words[kGo] = 1;
  expect_success(ranks);
}

TEST(Why, TellsOfBadInputTheValueAndARemedy) {
  const std::string folder = make_folder();
  const auto file = [&](const std::string& name, const std::string& content) {
    std::ofstream(folder + "/" + name) << content;
    return folder + "/" + name;
  };
  struct Row {
    std::string arguments;
    int code;
    std::string words;
  };
  const std::string me = std::to_string(getpid());
  const Row rows[] = {
      {me, 3, "process " + me + " is no rank of a running session; give the pid of a process that has made its"},
      {"4194303", 3, "there is no process 4194303, and it was no rank of a session that still runs; `ringbell top"},
      {"0", 64, "PID '0': a whole number from 1 to"},
      {"99999999999", 64, "PID '99999999999': a whole number from 1 to"},
      {"1 2", 64, "'2' beside pid 1: give one pid"},
      {"--session 0123456789abcdef 1", 64, "--session and '1' exclude each other"},
      {"--session 0123456789abcdef", 3, "has session 0123456789abcdef open; `ringbell top --once` lists"},
      {"--session no-such-session", 3, "no-such-session"},
      {folder + "/none.json", 3,
       "none.json': cannot be read: No such file or directory; give files that a rank left in"},
      {folder, 3, "give files that a rank left in RINGBELL_DUMP_DIR"},
      {file("text", "hello"), 3, "text': is no dump of ringbell; give files that a rank left in RINGBELL_DUMP_DIR"},
      {file("json", "[1, 2]"), 3, "json': is no dump of ringbell"},
      {file("other", R"({"schema": 1, "rows": []})"), 3, "other': is no dump of ringbell"},
      {file("newer", R"({"kind": "ringbell-flight", "schema": 2, "version": "9.0"})"), 3,
       "newer': has schema 2, this program reads 1; use the `ringbell` of the library that wrote it (version \"9.0\")"},
      {file("cut", R"({"kind": "ringbell-flight", "schema": 1, "version": "0.1.0"})"), 3,
       "cut': is a dump that was changed or cut: "},
  };
  for (const Row& row : rows) {
    const Outcome told = why(row.arguments);
    EXPECT_EQ(told.code, row.code) << row.arguments << ": " << told.out << told.err;
    EXPECT_HAS(told.err, row.words);
    EXPECT_EQ(told.out, "") << row.arguments;
  }
  remove_folder(folder);
}

TEST(Why, LeavesASessionOfAnotherLayoutAloneAndSaysSo) {
  // A file that the test has open under a session's name, with a header of layout version 1.
  const std::string name = "ringbell-" + std::to_string(geteuid()) + "-00000000000abcde";
  const std::string path = "/dev/shm/" + name;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(fd, 0);
  const std::uint64_t header[] = {0x014c4c4542474e52, 1};
  ASSERT_EQ(write(fd, header, sizeof header), static_cast<ssize_t>(sizeof header));
  unlink(path.c_str());
  const std::string words = "session /" + name + " has layout version 1, this program reads ";
  for (const std::string& subject : {std::to_string(getpid()), "--session " + name}) {
    const Outcome told = why(subject);
    EXPECT_EQ(told.code, 3) << told.out;
    EXPECT_HAS(told.err, words);
  }
  EXPECT_HAS(run_program("$RINGBELL why").out, words);
  const Outcome top = run_program("$RINGBELL top --once");
  EXPECT_EQ(top.code, 0);
  EXPECT_HAS(top.out, words);
  close(fd);
}

TEST(Why, LooksAtNoOtherUsersProcess) {
  if (geteuid() != 0) {
    const Outcome told = why("1");
    EXPECT_EQ(told.code, 3);
    EXPECT_HAS(told.err, "process 1 belongs to uid 0, this is uid " + std::to_string(geteuid()));
    return;
  }
  const pid_t other = fork();
  if (other == 0) {
    if (setuid(65534) != 0) _exit(1);
    pause();
    _exit(0);
  }
  const std::string pid = std::to_string(other);
  EXPECT_TRUE(eventually([&] { return has(file_text("/proc/" + pid + "/status"), "Uid:\t65534"); }));
  const Outcome told = why(pid);
  EXPECT_EQ(told.code, 3) << told.out;
  EXPECT_HAS(told.err, "process " + pid + " belongs to uid 65534, this is uid 0; only processes of the same user");
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(Dumps, AFolderThatTakesNoneIsOneWarningWithItsValueAndNoErrorOfACall) {
  const std::string folder = make_folder();
  const std::string gone = folder + "/none";
  const UniqueId id = unique_id_create();
  RankProcesses ranks(2, [&](int rank) -> std::string {
    setenv("RINGBELL_DUMP_DIR", gone.c_str(), 1);
    std::vector<std::string> warnings;
    set_log_handler([&](LogLevel level, int, std::string_view text) {
      if (level == LogLevel::kWarn) warnings.emplace_back(text);
    });
    Status status = Status::kOk;
    {
      Communicator comm(id, rank, 2, cpu_config());
      if (std::string text = make_call(comm); !text.empty()) return text;
      std::vector<float> data(rank == 0 ? 10 : 20, 1);
      status = comm.wait(start_call(comm, data));
    }
    set_log_handler({});
    if (status != Status::kMismatch) return status_name(status);
    if (warnings.size() != 1) return std::to_string(warnings.size()) + " warnings";
    return has(warnings[0], "RINGBELL_DUMP_DIR='" + gone + "' takes no dumps: No such file or directory") ? ""
                                                                                                          : warnings[0];
  });
  expect_success(ranks);
  remove_folder(folder);
}

TEST(Dumps, HoldTheLast256CallsWithTheirTimesInOrder) {
  const std::string folder = make_folder();
  const UniqueId id = unique_id_create();
  constexpr std::uint64_t kCalls = 1000;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    setenv("RINGBELL_DUMP_DIR", folder.c_str(), 1);
    Communicator comm(id, rank, 2, cpu_config());
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      if (std::string text = make_call(comm); !text.empty()) return text;
    }
    comm.abort();
    return "";
  });
  expect_success(ranks);
  int files = 0;
  for (const std::string& path : lines_of(run_program("ls " + folder + "/*.json").out)) {
    ++files;
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const Json dump = Json::parse(file_text(path));
    EXPECT_EQ(dump.at("schema"), 1);
    EXPECT_EQ(dump.at("submitted"), kCalls);
    EXPECT_EQ(dump.at("completed"), kCalls);
    EXPECT_EQ(dump.at("failure").at("status"), "aborted");
    const Json& records = dump.at("records");
    ASSERT_EQ(records.size(), 256u);
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const Json& record = records[i];
      EXPECT_EQ(record.at("seq"), kCalls - 256 + i);
      EXPECT_EQ(record.at("count"), 1000);
      EXPECT_EQ(record.at("status"), "ok");
      const auto submitted = record.at("submitted_ns").get<std::uint64_t>();
      const auto seen = record.at("seen_ns").get<std::uint64_t>();
      EXPECT_GE(submitted, before);
      EXPECT_GE(seen, submitted);
      before = seen;
    }
    EXPECT_LE(before, dump.at("dumped_ns").get<std::uint64_t>() + 1'000'000);
  }
  EXPECT_GE(files, 1);  // the peer may have ended well before it learned of the abort
  remove_folder(folder);
}

TEST(Top, ShowsTheSameCountersAsTableJsonAndPrometheus) {
  leave_out_a_call(
      [](RankProcesses& ranks) {
        expect_call_1_missed(ranks);
        const std::string pid = pid_text(ranks, 0);
        const Outcome table = run_program("$RINGBELL top --once");
        EXPECT_EQ(table.code, 0) << table.err;
        EXPECT_HAS(line_with(table.out, " " + pid + " "), "header of rank 2, ");
        EXPECT_HAS(table.out, "culprit: rank 2 (pid " + pid_text(ranks, 2) + ")");

        const Outcome json = run_program("$RINGBELL top --once --json");
        EXPECT_EQ(lines_of(json.out).size(), 1u);
        const Json top = Json::parse(json.out);
        EXPECT_EQ(top.at("schema"), 1);
        bool found = false;
        for (const Json& session : top.at("sessions")) {
          if (session.at("ranks").empty() || std::to_string(session["ranks"][0]["pid"].get<int>()) != pid) continue;
          found = true;
          const Json& rank = session["ranks"][0];
          EXPECT_EQ(rank.at("completed"), 1);
          EXPECT_EQ(rank.at("calls_per_s"), 0);
          EXPECT_EQ(rank.at("queued"), 1);
          EXPECT_EQ(rank.at("current").at("count"), 1000);
          EXPECT_EQ(rank.at("awaited").at("rank"), 2);
          EXPECT_EQ(rank.at("host_waits"), 1);
          EXPECT_EQ(session.at("culprit").at("ranks"), Json::array({2}));
        }
        EXPECT_TRUE(found) << json.out;

        const Outcome prometheus = run_program("$RINGBELL top --prometheus");
        EXPECT_EQ(prometheus.code, 0) << prometheus.err;
        EXPECT_HAS(prometheus.out, "# TYPE ringbell_completed_calls_total counter");
        const std::string labels = "rank=\"0\",pid=\"" + pid + "\"} ";
        EXPECT_HAS(prometheus.out, labels + "2\n");  // awaited_rank
        EXPECT_HAS(line_with(prometheus.out, "ringbell_completed_calls_total{"), "ringbell-");
      },
      make_call);
  const Outcome both = run_program("$RINGBELL top --json --prometheus");
  EXPECT_EQ(both.code, 64);
  EXPECT_HAS(both.err, "--json and --prometheus exclude each other");
}

TEST(Top, GoesOnEverySecondUntilItIsEnded) {
  Running top("exec $RINGBELL top --json");
  sleep_s(2.6);
  kill(top.pid(), SIGINT);
  const Outcome outcome = top.wait();
  EXPECT_EQ(outcome.code, 128 + SIGINT);
  EXPECT_GE(lines_of(outcome.out).size(), 2u) << outcome.out;
}

}  // namespace
}  // namespace ringbell::test
