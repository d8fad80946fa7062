// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/options.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include <CLI/CLI.hpp>

#include "runtime/build_info.hpp"
#include "tools/parse.hpp"
#include "tools/perf_sizes.hpp"

namespace ringbell::tools {
namespace {

constexpr int kMostRanks = 8;
constexpr std::uint64_t kSlotUnit = 1920;  // bytes; whole lines of every protocol

constexpr const char* kPerfExample =
    "example: ringbell perf --ranks 4 --device cpu -b 8 -e 1M -f 8 --proto LL -d float32,bfloat16 -c 1 -J ll.json\n"
    "         ringbell perf --device cpu --ranks 2 --against mpi,launch --sizes 8,1K,64K\n"
    "exit: 0 ok, 1 wrong data (a peer's too), 2 broken, 3 environment (also when a peer of --against could not run: "
    "the "
    "others' rows are there), 4 time-out or lost rank, 64 usage, 128+n signal";
constexpr const char* kRunExample =
    "example: ringbell run -n 4 --device cpu --tag -- ./my_program --its-own options\n"
    "exit: that of the first rank that fails, 128+n for a signal; 0 when none does";
constexpr const char* kCleanExample =
    "example: ringbell clean --dry-run\n"
    "One line per object: removed, would remove or kept; path; bytes; what it is and how that is known.\n"
    "Removed is what no process locks or has open any more. What is another user's or not this library's stays.\n"
    "exit: 0 nothing dead is left, 1 something else keeps a session from starting: see its line, 3 /dev/shm cannot be "
    "read,\n      64 usage";

constexpr const char* kWhyExample =
    "example: ringbell why            all running sessions of this user\n"
    "         ringbell why 4711       those in which this process is a rank; it may be hung, stopped or gone\n"
    "         ringbell why dumps/*.json   what ranks left in RINGBELL_DUMP_DIR when their communicator broke\n"
    "One line per rank, the last line names whom the others wait for. Reads only; touches no GPU.\n"
    "exit: 0 nobody waits, 1 somebody does, 2 a communicator has broken, 3 no such process, session or dump, 64 usage";
constexpr const char* kTopExample =
    "example: ringbell top\n         ringbell top --once --json\n"
    "         ringbell top --prometheus > /var/lib/node_exporter/ringbell.prom\n"
    "exit: 0 ok, also without a session, 3 no /proc, 64 usage, 130 ended by Ctrl-C";

/// Options of later versions: named here so that the answer is better than "unknown".
constexpr const char* kLater[] = {"--channels", "--threads"};

/// perf's options as given: texts, read after parsing so that every message names option, value and remedy.
struct PerfTexts {
  std::string ranks, device, gpus, begin = "8", end = "64M", factor, step, iterations, warmup, check = "1";
  std::string dtypes = "float32", ops = "sum", graphs = "0", algorithm = "auto", protocol = "auto", issue = "host";
  std::string sizes, chunk, seed = "1", timeout, against, rounds, l2 = "warm", rate, seat;
  std::string later[std::size(kLater)];
};

struct RunTexts {
  std::string ranks, device;
};

void describe_perf(CLI::App& perf, PerfTexts& texts, PerfOptions& options) {
  perf.footer(kPerfExample);
  perf.add_option("--ranks", texts.ranks, "ranks to start, 1 to 8; without: one per GPU, 2 on CPU");
  perf.add_option("--device", texts.device, "auto, cpu or cuda; auto is cuda where there is a GPU");
  perf.add_option("--gpus", texts.gpus, "CUDA devices of the ranks in order, e.g. 0,1");
  perf.add_option("-b,--minbytes", texts.begin, "first size in bytes; K, M, G are powers of 1024 (8)");
  perf.add_option("-e,--maxbytes", texts.end, "last size, always measured (64M)");
  perf.add_option("-f,--stepfactor", texts.factor, "next size = size x this (4)");
  perf.add_option("-i,--stepbytes", texts.step, "next size = size + this, instead of -f");
  perf.add_option("--sizes", texts.sizes, "these sizes instead of -b -e -f -i, e.g. 8,1K,8K");
  perf.add_option("-n,--iters", texts.iterations, "counted calls per row (20)");
  perf.add_option("-w,--warmup_iters", texts.warmup, "calls before those (5)");
  perf.add_option("-c,--check", texts.check,
                  "1: new values before and a check after every call, on every rank; 0: none (1)");
  perf.add_option("-d,--datatype", texts.dtypes, "list of " + join(dtype_names(), ",") + " or all (float32)");
  perf.add_option("-o,--op", texts.ops, "list of " + join(reduce_op_names(), ",") + " or all (sum)");
  perf.add_option("-G,--cudagraph", texts.graphs, "that many graph launches: --issue graph -n G (0: none)");
  perf.add_option("-J,--output_file", options.json_path, "write the results as JSON");
  perf.add_option("--algo", texts.algorithm, "ring, oneshot or auto (auto)");
  perf.add_option("--proto", texts.protocol, "LL, LL128, Simple or auto (auto)");
  perf.add_option("--issue", texts.issue,
                  "list of host: one call alone; after: the same behind a stream; stream: back to back on a stream; "
                  "graph: nodes of a graph; chain: 64 x producer kernel, call, consumer kernel, each of those ways "
                  "(host)");
  perf.add_option("--chunk", texts.chunk,
                  "payload of a slot in bytes, a multiple of 1920; without: the library's choice");
  perf.add_flag("--allow-shared-device", options.allow_shared_device, "let several ranks use one GPU");
  perf.add_option("--seed", texts.seed, "of the values (1)");
  perf.add_option("--timeout", texts.timeout,
                  "seconds a call may wait for a peer; 0: for ever; without: the library's");
  perf.add_flag("--hash", options.hash, "a hash of the output in every row");
  perf.add_option("--against", texts.against,
                  "measure these too, each in processes of its own that take turns with ours: a list of " +
                      join(peer_names(), ","));
  perf.add_option("--rounds", texts.rounds, "turns of everyone for each row (5 with --against, else 1)");
  perf.add_option("--l2", texts.l2,
                  "buffers when a call begins: warm; cold (others for every call); flush (cache overwritten before "
                  "every call) (warm)");
  perf.add_option("--rate", texts.rate, "single calls a second at most, evenly; without: as fast as they go");
  perf.add_flag("--hold", options.hold, "hold() ringbell's worker for the whole run: no idle park, no lease");
  perf.add_flag("--tail", options.tail, "a line of p99.9 and maximum for every row, after the table");
  perf.add_option(std::string(kSeatOption), texts.seat)->group("");
  for (std::size_t i = 0; i < std::size(kLater); ++i) perf.add_option(kLater[i], texts.later[i])->group("");
}

std::string version_text() {
  const BuildInfo& build = build_info();
  std::ostringstream text;
  text << "ringbell " << build.version << ", commit " << build.commit << (build.dirty ? " (modified)" : "") << ", CUDA "
       << build.cuda << ", architectures " << build.architectures << ", " << build.build_type << ", " << build.compiler;
  return text.str();
}

std::vector<std::uint64_t> read_sizes(const CLI::App& perf, const PerfTexts& texts) {
  if (!texts.sizes.empty()) {
    for (const char* other : {"-b", "-e", "-f", "-i"}) {
      if (perf.count(other) != 0) throw UsageError(std::string("--sizes and ") + other + " exclude each other");
    }
    std::vector<std::uint64_t> sizes;
    for (const std::string_view part : split_list("--sizes", texts.sizes)) sizes.push_back(parse_size("--sizes", part));
    return sizes;
  }
  if (!texts.factor.empty() && !texts.step.empty()) throw UsageError("-f and -i exclude each other");
  const std::uint64_t factor =
      texts.factor.empty() ? 4 : parse_whole("-f", texts.factor, 2, std::numeric_limits<std::uint32_t>::max());
  const std::uint64_t step = texts.step.empty() ? 0 : parse_size("-i", texts.step);
  if (!texts.step.empty() && step == 0) refuse("-i", texts.step, "a step is 1 byte or more");
  return sweep_sizes(parse_size("-b", texts.begin), parse_size("-e", texts.end), factor, step);
}

DeviceKind read_device(std::string_view option, std::string_view text) {
  constexpr DeviceKind kKinds[] = {DeviceKind::kAuto, DeviceKind::kCpu, DeviceKind::kCuda};
  return kKinds[parse_choice(option, text, {"auto", "cpu", "cuda"})];
}

Protocol read_protocol(std::string_view text) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kProtocolCount; ++i) names.emplace_back(protocol_name(static_cast<Protocol>(i)));
  return static_cast<Protocol>(parse_choice("--proto", text, names));
}

Algorithm read_algorithm(std::string_view text) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kAlgorithmCount; ++i) names.emplace_back(algorithm_name(static_cast<Algorithm>(i)));
  return static_cast<Algorithm>(parse_choice("--algo", text, names));
}

void refuse_later(const CLI::App& perf) {
  for (const char* option : kLater) {
    if (perf.count(option) == 0) continue;
    throw UsageError(
        std::string(option) +
        " is not in this version. There are: --ranks --device --gpus -b -e -f -i --sizes -n -w -c -d -o -G "
        "-J --algo ring|oneshot|auto --proto LL|LL128|Simple|auto --issue --chunk --allow-shared-device --seed "
        "--timeout --hash --against --rounds --l2 --rate --hold --tail");
  }
}

Seat read_seat(std::string_view text, std::size_t peers) {
  std::vector<int> numbers;
  for (const std::string_view part : split_list(kSeatOption, text)) {
    numbers.push_back(static_cast<int>(parse_whole(kSeatOption, part, 0, std::numeric_limits<int>::max())) - 1);
  }
  if (numbers.size() != 5 || numbers[3] < 0 || numbers[3] > static_cast<int>(peers)) {
    refuse(kSeatOption, text, "only for processes that perf starts");
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] == 1};
}

/// --issue and -G.
void read_issue(const CLI::App& perf, const PerfTexts& texts, PerfOptions& options) {
  const auto graphs = static_cast<int>(parse_whole("-G", texts.graphs, 0, std::numeric_limits<int>::max()));
  std::string issue = texts.issue;
  if (graphs != 0) {
    if (perf.count("--issue") != 0 && issue != "graph") {
      throw UsageError("-G " + texts.graphs + " and --issue " + issue + " exclude each other: -G is --issue graph");
    }
    if (perf.count("-n") != 0)
      throw UsageError("-G " + texts.graphs + " and -n exclude each other: -G counts the samples");
    issue = "graph";
    options.iterations = graphs;
  }
  options.ways.clear();
  std::vector<std::size_t> seen;
  for (const std::string_view part : split_list("--issue", issue)) {
    const std::size_t word = parse_choice("--issue", part, {std::begin(kIssueWords), std::end(kIssueWords)});
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) {
      refuse("--issue", issue, std::string(part) + " is there twice: name every way once");
    }
    seen.push_back(word);
    for (const IssueWay way : issue_ways(word)) options.ways.push_back(way);
  }
  const bool samples =
      std::any_of(options.ways.begin(), options.ways.end(), [](IssueWay way) { return !is_single(way); });
  if (samples && options.l2 != L2State::kWarm) {
    throw UsageError("--l2 " + texts.l2 + " and --issue " + issue +
                     " exclude each other: between calls back to back nothing can be done to the cache");
  }
}

void read_perf(const CLI::App& perf, const PerfTexts& texts, PerfOptions& options) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  refuse_later(perf);
  if (perf.count("-J") != 0 && options.json_path.empty()) refuse("-J", options.json_path, "the name of a file");
  if (!texts.ranks.empty()) options.ranks = static_cast<int>(parse_whole("--ranks", texts.ranks, 1, kMostRanks));
  if (!texts.device.empty()) options.device = read_device("--device", texts.device);
  if (!texts.gpus.empty()) {
    for (const std::string_view part : split_list("--gpus", texts.gpus)) {
      options.gpus.push_back(static_cast<int>(parse_whole("--gpus", part, 0, 1023)));
    }
    if (options.device == DeviceKind::kCpu)
      throw UsageError("--gpus " + texts.gpus + " and --device cpu exclude each other");
  }
  options.sizes = read_sizes(perf, texts);
  if (!texts.iterations.empty()) options.iterations = static_cast<int>(parse_whole("-n", texts.iterations, 1, kMost));
  if (!texts.warmup.empty()) options.warmup = static_cast<int>(parse_whole("-w", texts.warmup, 0, kMost));
  options.check = parse_choice("-c", texts.check, {"0", "1"}) == 1;
  options.dtypes = parse_dtypes("-d", texts.dtypes);
  options.ops = parse_reduce_ops("-o", texts.ops);
  refuse_end_below_element(options.sizes, options.dtypes);
  options.algorithm = read_algorithm(texts.algorithm);
  options.protocol = read_protocol(texts.protocol);
  if (!texts.chunk.empty()) {
    const std::uint64_t bytes = parse_size("--chunk", texts.chunk);
    if (bytes == 0 || bytes % kSlotUnit != 0 || bytes > std::numeric_limits<std::uint32_t>::max()) {
      refuse("--chunk", texts.chunk, "a multiple of 1920 bytes, e.g. 7680 or 61440");
    }
    options.slot_bytes = static_cast<std::uint32_t>(bytes);
  }
  options.seed = parse_whole("--seed", texts.seed, 0, std::numeric_limits<std::uint64_t>::max());
  if (!texts.timeout.empty()) options.timeout_s = parse_seconds("--timeout", texts.timeout);
  constexpr std::uint64_t kMostRounds = 1000;
  constexpr int kRoundsAgainst = 5;
  if (perf.count("--against") != 0) options.against = parse_peers("--against", texts.against);
  if (!options.against.empty()) options.rounds = kRoundsAgainst;
  if (!texts.rounds.empty()) options.rounds = static_cast<int>(parse_whole("--rounds", texts.rounds, 1, kMostRounds));
  options.l2 = static_cast<L2State>(parse_choice("--l2", texts.l2, {std::begin(kL2Names), std::end(kL2Names)}));
  read_issue(perf, texts, options);
  if (!texts.rate.empty()) {
    constexpr std::uint64_t kMostRate = 1'000'000;
    options.rate_hz = static_cast<double>(parse_whole("--rate", texts.rate, 1, kMostRate));
    if (std::any_of(options.ways.begin(), options.ways.end(), [](IssueWay way) { return !is_single(way); })) {
      throw UsageError("--rate " + texts.rate + " and --issue " + texts.issue +
                       " exclude each other: a rate is one of single calls, host or after");
    }
  }
  if (!texts.seat.empty()) options.seat = read_seat(texts.seat, options.against.size());
}

/// A number is a process, everything else a dump.
void read_subjects(const std::vector<std::string>& subjects, WhyOptions& why) {
  if (subjects.empty()) return;
  if (why.session) throw UsageError("--session and '" + subjects[0] + "' exclude each other");
  if (subjects[0].find_first_not_of("0123456789") != std::string::npos) {
    why.files = subjects;
    return;
  }
  if (subjects.size() > 1) throw UsageError("'" + subjects[1] + "' beside pid " + subjects[0] + ": give one pid");
  constexpr std::uint64_t kMostPid = 4'194'304;
  why.pid = static_cast<std::uint32_t>(parse_whole("PID", subjects[0], 1, kMostPid));
}

// What follows "--" is the command's, whatever it looks like: this parser never sees it.
std::vector<std::string> take_command(int argc, const char* const* argv, int* own_argc) {
  *own_argc = argc;
  std::vector<std::string> command;
  if (argc < 2 || std::string_view(argv[1]) != "run") return command;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    command.assign(argv + i + 1, argv + argc);
    *own_argc = i;
    break;
  }
  return command;
}

}  // namespace

std::string seat_text(const Seat& seat) {
  // One more than each: there are no negative numbers in a list.
  std::string text;
  for (const int number : {seat.owner, seat.meeting_fd, seat.turns_fd, seat.group, seat.probe ? 1 : 0}) {
    text += (text.empty() ? "" : ",") + std::to_string(number + 1);
  }
  return text;
}

CommandLine read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  RunTexts run_texts;
  PerfTexts perf_texts;
  int own_argc = argc;
  line.run.command = take_command(argc, argv, &own_argc);

  CLI::App app("AllReduce without a kernel launch: start ranks and measure.", "ringbell");
  app.require_subcommand(0, 1);
  app.footer(
      "example: ringbell perf --ranks 4 --device cpu -b 8 -e 1M -f 8\n`ringbell COMMAND --help` tells a command's "
      "options.");
  bool version = false;
  app.add_flag("--version", version, "version, commit, CUDA, architectures");

  CLI::App* const run =
      app.add_subcommand("run", "start N ranks of a program: ringbell run -n N [OPTIONS] -- CMD [ARGUMENTS]");
  run->footer(kRunExample);
  run->add_option("-n", run_texts.ranks, "ranks, 1 to 8");
  run->add_option("--device", run_texts.device, "auto, cpu or cuda: sets RINGBELL_DEVICE");
  run->add_flag("--tag", line.run.tag, "prefix every line of output with its rank");

  CLI::App* const perf = app.add_subcommand("perf", "measure and verify AllReduce on ranks that it starts itself");
  describe_perf(*perf, perf_texts, line.perf);

  CLI::App* const environment = app.add_subcommand("env", "the RINGBELL_* variables and their values here");
  environment->footer("example: RINGBELL_PROTO=LL ringbell env");

  CLI::App* const clean =
      app.add_subcommand("clean", "remove what sessions that died left in /dev/shm, and perf's temporary folders");
  clean->footer(kCleanExample);
  clean->add_flag("--dry-run", line.clean.dry_run, "only tell");
  std::string session;
  clean->add_option("--session", session, "this one alone: its RINGBELL_SESSION, or a name as this command prints it");

  CLI::App* const why = app.add_subcommand("why", "a job hangs or broke: name the rank that all others wait for");
  why->footer(kWhyExample);
  std::vector<std::string> subjects;
  why->add_option("subject", subjects, "a pid, or dumps")->type_name("PID|FILE...");
  std::string why_session;
  why->add_option("--session", why_session, "the session: its RINGBELL_SESSION, or a name as this command prints it");

  CLI::App* const top = app.add_subcommand("top", "counters of all running sessions of this user");
  top->footer(kTopExample);
  top->add_flag("--once", line.top.once, "one look, instead of one every second");
  bool top_json = false;
  top->add_flag("--json", top_json, "a line of JSON for each look");
  bool prometheus = false;
  top->add_flag("--prometheus", prometheus, "one look, as Prometheus' text format");

  try {
    app.parse(own_argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::ostringstream text;
    app.exit(help, text, text);
    line.text = text.str();
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }

  if (version) {
    line.text = version_text() + "\n";
  } else if (run->parsed()) {
    line.command = Command::kRun;
    if (run_texts.ranks.empty()) throw UsageError("run: -n is missing: ringbell run -n N -- CMD");
    line.run.ranks = static_cast<int>(parse_whole("-n", run_texts.ranks, 1, kMostRanks));
    if (!run_texts.device.empty()) {
      static_cast<void>(read_device("--device", run_texts.device));
      line.run.device = run_texts.device;
    }
    if (line.run.command.empty())
      throw UsageError("run: no command: put it after --, as in ringbell run -n 2 -- ./program");
  } else if (perf->parsed()) {
    line.command = Command::kPerf;
    read_perf(*perf, perf_texts, line.perf);
  } else if (environment->parsed()) {
    line.command = Command::kEnvironment;
  } else if (clean->parsed()) {
    line.command = Command::kClean;
    if (clean->count("--session") != 0) line.clean.session = session;
  } else if (why->parsed()) {
    line.command = Command::kWhy;
    if (why->count("--session") != 0) line.why.session = why_session;
    read_subjects(subjects, line.why);
  } else if (top->parsed()) {
    line.command = Command::kTop;
    if (top_json && prometheus) throw UsageError("--json and --prometheus exclude each other");
    line.top.format = top_json ? TopFormat::kJson : prometheus ? TopFormat::kPrometheus : TopFormat::kTable;
    line.top.once = line.top.once || prometheus;
  } else {
    throw UsageError("no command: run, perf, why, top, env or clean; see --help");
  }
  return line;
}

}  // namespace ringbell::tools
