// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_groups.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/session.hpp"
#include "tools/exit_codes.hpp"
#include "tools/meeting.hpp"
#include "tools/output.hpp"
#include "tools/temporary_folder.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {
namespace {

constexpr const char* kMpiProgram = "ringbell-perf-mpi";

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// What a peer's processes print: read when they fail.
int output_place() {
  const int fd = memfd_create("ringbell-perf-output", MFD_CLOEXEC);
  if (fd < 0) throw ExitError(kExitEnvironment, std::string("memfd_create: ") + std::strerror(errno));
  return fd;
}

std::string output_of(int fd) {
  constexpr std::size_t kMost = 65536;
  std::string text(kMost, '\0');
  const ssize_t count = pread(fd, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

/// The first line that says something, without a launcher's rules of dashes.
std::string first_words(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.find_first_of("abcdefghijklmnopqrstuvwxyz") != std::string::npos) return line;
    begin = end + 1;
  }
  return "";
}

std::string own_program(const std::string& as_typed) {
  constexpr const char* kSelf = "/proc/self/exe";
  return access(kSelf, X_OK) == 0 ? kSelf : as_typed;
}

std::string path_of_mpi_program() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? kMpiProgram : (self.parent_path() / kMpiProgram).string();
}

bool in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (access((std::string(folder) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  return false;
}

/// All the groups of one run, as the launcher sees them.
class PerfGroups {
 public:
  PerfGroups(const PerfOptions& options, int ranks, DeviceKind device, const std::vector<std::string>& arguments)
      : options_(options), ranks_(ranks), device_(device), arguments_(arguments) {
    if (options.against.empty()) return;
    const TurnsShape shape = TurnsShape::of(options);
    turns_fd_ = turns_places_.emplace_back(Turns::create_place(shape)).get();
    turns_ = std::make_unique<Turns>(turns_fd_, shape);
  }

  GroupResult run() {
    const GroupPlan ours = ringbell_plan(0);
    for (std::size_t i = 0; i < options_.against.size(); ++i) add_peer(i);
    sides_.ended = [this](std::size_t side, const GroupResult& result) { tell_end(side, result); };
    sides_.unwanted = [this](std::size_t side) {
      const Side& one = side_of_[side];
      return turns_->failed(one.group) || (one.probes && turns_->probe_unwanted(one.group));
    };
    const GroupResult result = run_group(ours, turns_ ? &sides_ : nullptr);
    for (const std::string& session : sessions_) {
      const std::string leftover = session::remove_leftover(session);
      if (!leftover.empty()) complain("ringbell perf: " + leftover + "\n");
    }
    return result;
  }

 private:
  struct Side {
    int group;
    bool probes;
  };

  /// Processes of this program, ringbell's own or a peer's.
  GroupPlan ringbell_plan(int group, bool probes = false) {
    GroupPlan plan;
    plan.ranks = ranks_;
    plan.session = session::new_token();
    sessions_.push_back(plan.session);
    Seat seat;
    seat.meeting_fd = meetings_.emplace_back(Meeting::create_place()).get();
    seat.turns_fd = turns_fd_;
    seat.group = group;
    seat.probe = probes;
    plan.inherited_fds = {seat.meeting_fd};
    if (turns_fd_ >= 0) plan.inherited_fds.push_back(turns_fd_);
    plan.command = arguments_;
    plan.command.front() = own_program(arguments_.front());
    plan.command.emplace_back(kSeatOption);
    plan.command.push_back(seat_text(seat));
    plan.environment["RINGBELL_DEVICE"] = device_ == DeviceKind::kCpu ? "cpu" : "cuda";
    plan.unset = {"RINGBELL_LAUNCHER"};
    return plan;
  }

  /// mpirun starts the ranks, and hands no descriptors down.
  GroupPlan mpi_plan(int group) {
    GroupPlan plan;
    Seat seat;
    seat.owner = static_cast<int>(getpid());
    seat.meeting_fd = meetings_.emplace_back(Meeting::create_place()).get();
    seat.turns_fd = turns_fd_;
    seat.group = group;
    plan.command = {"mpirun", "-n", std::to_string(ranks_), "--oversubscribe"};
    if (geteuid() == 0) plan.command.emplace_back("--allow-run-as-root");
    plan.command.push_back(path_of_mpi_program());
    plan.command.insert(plan.command.end(), arguments_.begin() + 1, arguments_.end());
    plan.command.emplace_back(kSeatOption);
    plan.command.push_back(seat_text(seat));
    return plan;
  }

  /// Why the peer cannot even be started here; empty: it can.
  [[nodiscard]] std::string obstacle(const PeerName& peer) const {
    if (peer.is_nccl() && device_ == DeviceKind::kCpu) return "NCCL needs GPUs, and these ranks run on the CPU";
    if (peer.kind != PeerKind::kMpi) return "";
    if (device_ == DeviceKind::kCuda) return "measures buffers of the CPU only: use --device cpu";
    if (access(path_of_mpi_program().c_str(), X_OK) != 0) {
      return "not built in (Open MPI was not found at build time): apt-get install libopenmpi-dev openmpi-bin and "
             "build again";
    }
    return in_path("mpirun") ? "" : "there is no mpirun in PATH: apt-get install openmpi-bin";
  }

  void add_peer(std::size_t index) {
    const PeerName& peer = options_.against[index];
    const int group = static_cast<int>(index) + 1;
    const std::string why = obstacle(peer);
    if (!why.empty()) {
      turns_->gone(group, why);
      return;
    }
    add_side(peer.kind == PeerKind::kMpi ? mpi_plan(group) : ringbell_plan(group), peer, {group, false});
    if (peer.is_nccl()) add_probe(peer, group);
  }

  // Logging would slow what is timed: which algorithms NCCL takes is asked in processes that are gone by then.
  void add_probe(const PeerName& peer, int group) {
    GroupPlan plan = ringbell_plan(group, true);
    if (!logs_) logs_.emplace();
    plan.environment["NCCL_DEBUG"] = "INFO";
    plan.environment["NCCL_DEBUG_SUBSYS"] = "INIT,COLL,TUNING,NVLS";
    plan.environment["NCCL_DEBUG_FILE"] = logs_->path() + "/" + peer.name + ".%p";
    turns_->probe_begins(group);
    add_side(plan, peer, {group, true});
  }

  void add_side(GroupPlan plan, const PeerName& peer, Side side) {
    for (const auto& [name, value] : forced_environment(peer)) plan.environment[name] = value;
    plan.output_fd = outputs_.emplace_back(output_place()).get();
    sides_.plans.push_back(std::move(plan));
    side_of_.push_back(side);
  }

  void tell_end(std::size_t side, const GroupResult& result) {
    const int group = side_of_[side].group;
    if (side_of_[side].probes) return turns_->probe_ended(group);
    const PeerName& peer = options_.against[static_cast<std::size_t>(group) - 1];
    const std::string who =
        peer.kind == PeerKind::kMpi ? "mpirun" : "rank " + std::to_string(std::max(result.failed_rank, 0));
    std::string why = result.error;
    if (why.empty() && result.failed_rank >= 0) {
      why = who + (result.signal != 0 ? " was ended by signal " + std::to_string(result.signal)
                                      : " exited with code " + std::to_string(result.exit_code));
      const std::string words = first_words(output_of(outputs_[side].get()));
      if (result.signal == 0 && !words.empty()) why += ": " + words;
    }
    turns_->gone(group, why);
  }

  const PerfOptions& options_;
  const int ranks_;
  const DeviceKind device_;
  const std::vector<std::string>& arguments_;
  std::vector<Descriptor> turns_places_;
  std::vector<Descriptor> meetings_;
  std::vector<Descriptor> outputs_;  ///< of the sides
  std::vector<std::string> sessions_;
  std::vector<Side> side_of_;
  std::optional<TemporaryFolder> logs_;
  SideGroups sides_;
  int turns_fd_ = -1;
  std::unique_ptr<Turns> turns_;
};

}  // namespace

GroupResult run_perf_groups(const PerfOptions& options, int ranks, DeviceKind device,
                            const std::vector<std::string>& arguments) {
  return PerfGroups(options, ranks, device, arguments).run();
}

}  // namespace ringbell::tools
