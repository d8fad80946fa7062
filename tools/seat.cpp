// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/seat.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {

int open_descriptor(int owner, int fd) {
  const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(fd);
  const int copy = owner == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (copy >= 0) return copy;
  throw ExitError(kExitEnvironment, owner == 0 ? "perf's shared page is not open: only perf uses --seat"
                                               : "cannot open " + path +
                                                     ": ranks in different PID namespaces; let perf start them "
                                                     "(--ranks N)");
}

double meeting_limit_s(const PerfOptions& options) {
  constexpr double kDefault = 30;
  constexpr double kMargin = 60;
  if (options.timeout_s == 0) return 0;
  return 2 * (options.timeout_s < 0 ? kDefault : options.timeout_s) + kMargin;
}

std::unique_ptr<Meeting> take_seat(const PerfOptions& options, int rank, int world) {
  const int fd = open_descriptor(options.seat.owner, options.seat.meeting_fd);
  auto meeting = std::make_unique<Meeting>(fd, rank, world, meeting_limit_s(options));
  close(fd);
  return meeting;
}

std::unique_ptr<Turns> join_turns(const PerfOptions& options) {
  if (options.seat.turns_fd < 0) return nullptr;
  const int fd = open_descriptor(options.seat.owner, options.seat.turns_fd);
  auto turns = std::make_unique<Turns>(fd, TurnsShape::of(options));
  close(fd);
  return turns;
}

}  // namespace ringbell::tools
