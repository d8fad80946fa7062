// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which sessions somebody means, found by /proc. What is read of one is session_view.cpp.
#include <algorithm>
#include <memory>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/clock.hpp"
#include "host/error.hpp"
#include "host/open_segments.hpp"
#include "host/process_status.hpp"
#include "host/unique_id.hpp"
#include "runtime/session.hpp"
#include "runtime/session_view.hpp"

namespace ringbell::session {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string remedy_list() { return "`ringbell top --once` lists the sessions of this user"; }

/// @throws Error: not a process of this user
void check_owner(std::uint32_t pid, const host::ProcessStatus& status) {
  const std::uint32_t uid = status.uid;
  if (uid == geteuid()) return;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("process {} belongs to uid {}, this is uid {}", pid, uid, geteuid()),
                    fmt::format("only processes of the same user are looked at; run it as that user: sudo -u '#{}' "
                                "ringbell why {}",
                                uid, pid));
}

/// One descriptor of each segment, opened. Several processes have it; one may end meanwhile.
struct Found {
  std::string name;
  std::unique_ptr<Descriptor> file;
};

class Finder {
 public:
  explicit Finder(std::string prefix) : prefix_(std::move(prefix)) {}

  /// @return false when it cannot be seen what the process has open
  bool look_into(std::uint32_t pid) {
    const auto segments = host::open_segments_of(pid, prefix_);
    if (!segments) return false;
    for (const host::OpenSegment& segment : *segments) {
      if (seen_.contains({segment.device, segment.inode})) continue;
      auto file = std::make_unique<Descriptor>(
          ::open(host::descriptor_path(segment).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      struct stat info {};
      if (file->get() < 0 || fstat(file->get(), &info) != 0) continue;
      // The number may have become another file's meanwhile.
      if (info.st_dev != segment.device || info.st_ino != segment.inode || info.st_uid != geteuid()) continue;
      seen_.insert({segment.device, segment.inode});
      found_.push_back({segment.name, std::move(file)});
    }
    return true;
  }
  void look_everywhere() {
    for (const std::uint32_t pid : host::process_ids()) (void)look_into(pid);
  }
  std::vector<Found> take() {
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  std::string prefix_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<Found> found_;
};

bool has_rank_of(const SessionView& session, std::uint32_t pid) {
  return std::any_of(session.ranks.begin(), session.ranks.end(), [&](const RankView& rank) { return rank.pid == pid; });
}

std::vector<Found> find_of_process(std::uint32_t pid, const std::string& prefix) {
  Finder finder(prefix);
  if (const auto status = host::read_process_status(pid)) {
    check_owner(pid, *status);
    if (!finder.look_into(pid)) {
      host::throw_error(Status::kInvalidArgument, fmt::format("what process {} has open cannot be seen from here", pid),
                        "it has changed its user or forbids it (PR_SET_DUMPABLE): give the pid of another rank");
    }
    auto found = finder.take();
    if (!found.empty()) return found;
    host::throw_error(
        Status::kInvalidArgument, fmt::format("process {} is no rank of a running session", pid),
        "give the pid of a process that has made its Communicator, not of its launcher; " + remedy_list());
  }
  // Its peers may still have the session that it was in.
  finder.look_everywhere();
  auto found = finder.take();
  std::erase_if(found, [&](const Found& one) {
    try {
      return !has_rank_of(read_session(one.file->get(), one.name), pid);
    } catch (const Error&) {
      return true;
    }
  });
  if (!found.empty()) return found;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("there is no process {}, and it was no rank of a session that still runs", pid),
                    remedy_list());
}

std::vector<Found> find(const Choice& choice) {
  const std::string all = host::segment_name_prefix(geteuid());
  if (choice.pid) return find_of_process(*choice.pid, all);
  if (!choice.name) {
    Finder finder(all);
    finder.look_everywhere();
    return finder.take();
  }
  Finder finder(segment_name(*choice.name));
  finder.look_everywhere();
  auto found = finder.take();
  if (!found.empty()) return found;
  host::throw_error(Status::kInvalidArgument,
                    fmt::format("no process of uid {} has session {} open", geteuid(), *choice.name), remedy_list());
}

}  // namespace

std::vector<SessionView> view_sessions(const Choice& choice, double apart_s) {
  if (::access("/proc/self/stat", R_OK) != 0) {
    host::throw_errno("access", "/proc/self/stat", "running sessions are found by /proc: mount it");
  }
  const auto found = find(choice);
  const auto look = [&](const Found& one) {
    try {
      return read_session(one.file->get(), one.name);
    } catch (const Error& error) {
      if (choice.pid || choice.name) throw;
      SessionView view;
      view.name = one.name;
      view.unreadable = error.what();
      return view;
    }
  };
  std::vector<SessionView> before;
  for (const Found& one : found) before.push_back(look(one));
  host::sleep_ns(static_cast<long>(apart_s * static_cast<double>(host::kNanosPerSecond)));
  std::vector<SessionView> views;
  for (std::size_t i = 0; i < found.size(); ++i) views.push_back(combine(before[i], look(found[i])));
  return views;
}

}  // namespace ringbell::session
