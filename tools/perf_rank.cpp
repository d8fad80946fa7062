// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell perf` as one rank of ringbell: comes to its group and sets up what is measured. The order of the run is
// perf_sequence.hpp.
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/meeting.hpp"
#include "tools/output.hpp"
#include "tools/own_core.hpp"
#include "tools/peer_nccl.hpp"
#include "tools/peer_ringbell.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_cache.hpp"
#include "tools/perf_measure.hpp"
#include "tools/perf_sequence.hpp"
#include "tools/seat.hpp"
#include "tools/turns.hpp"

namespace ringbell::tools {
namespace {

int device_ordinal(const PerfOptions& options, const session::Place& place) {
  const auto local = static_cast<std::size_t>(place.local_rank);
  if (!options.gpus.empty()) return options.gpus[local % options.gpus.size()];
  return place.local_rank % std::max(1, session::cuda_device_count());
}

Config make_config(const PerfOptions& options, DeviceKind device, int ordinal) {
  Config config;
  config.device = device;
  config.device_ordinal = ordinal;
  config.allow_shared_device = options.allow_shared_device;
  config.slot_bytes = options.slot_bytes;
  config.timeout_s = options.timeout_s;
  config.algorithm = options.algorithm;
  config.protocol = options.protocol;
  return config;
}

// Another launcher started the ranks: rank 0 makes the place and tells the others by an AllReduce where it is.
std::unique_ptr<Meeting> find_meeting(Communicator& comm, Buffers& buffers, double limit_s) {
  std::uint64_t place[2] = {0, 0};
  int fd = -1;
  if (comm.rank() == 0) {
    fd = Meeting::create_place();
    place[0] = static_cast<std::uint64_t>(getpid());
    place[1] = static_cast<std::uint64_t>(fd);
  }
  buffers.copy_from_host(buffers.in(), place, sizeof(place));
  const Ticket ticket = comm.all_reduce(buffers.in(), buffers.out(), 2, DType::kUInt64, ReduceOp::kMax);
  const Status status = ticket.status == Status::kOk ? comm.wait(ticket) : ticket.status;
  if (status != Status::kOk) throw call_error(comm, status);
  buffers.copy_to_host(place, buffers.out(), sizeof(place));
  if (comm.rank() != 0) fd = open_descriptor(static_cast<int>(place[0]), static_cast<int>(place[1]));
  auto meeting = std::make_unique<Meeting>(fd, comm.rank(), comm.world(), limit_s);
  meeting->barrier();
  close(fd);
  return meeting;
}

/// Nothing when the text is empty.
void tell(int rank, const char* text) {
  if (*text != 0) complain(fmt::format("ringbell perf: rank {}: {}\n", rank, text));
}

/// All rows. @return the conductor's exit code, 0 on the others
int measure_rows(const PerfOptions& options, Communicator& comm, Buffers& buffers, WorkStream* work, Meeting& meeting,
                 Turns* turns, const std::vector<std::string>& arguments) {
  RingbellPeer peer(comm);
  if (options.hold) {
    if (const Status status = comm.hold(); status != Status::kOk) throw call_error(comm, status);
  }
  const int group = options.seat.group;
  std::function<void()> beat;
  if (turns != nullptr) beat = [turns, group] { turns->beat(group); };
  if (comm.device() == DeviceKind::kCuda) stay_on_own_core(comm.rank(), comm.world());
  Measurement measurement(peer, buffers, meeting, options, work, beat);
  int code = kExitOk;
  if (group == 0 && comm.rank() == 0) {
    code = conduct(options, {comm.describe(), comm.world(), comm.device()}, measurement, turns, arguments);
  } else if (turns != nullptr) {
    const std::string describe = comm.describe();
    take_turns(options, measurement, meeting, *turns, describe.substr(0, describe.find(" rank ")));
  } else {
    follow(options, measurement);
  }
  meeting.barrier();  // a rank that ended before could end rank 0 in the middle of its report
  return code;
}

int measure(const PerfOptions& options, const session::Place& place, Turns* turns,
            const std::vector<std::string>& arguments) {
  const bool conducts = place.rank == 0 && options.seat.group == 0;
  if (conducts && !options.json_path.empty()) check_replaceable(options.json_path);
  const DeviceKind device = perf_device(options);
  const int ordinal = device == DeviceKind::kCuda ? device_ordinal(options, place) : -1;
  // Before the worker: what allocates and loads would wait for it.
  const std::uint64_t bytes = region_bytes(options);
  const bool flushes = options.l2 != L2State::kWarm;
  const std::unique_ptr<Buffers> buffers =
      device == DeviceKind::kCuda ? make_cuda_buffers(ordinal, bytes, flushes) : make_cpu_buffers(bytes, flushes);
  std::unique_ptr<WorkStream> work;
  if (any_needs_stream(options)) {
    work = device == DeviceKind::kCuda ? make_cuda_work_stream() : make_cpu_work_stream();
  }
  Communicator comm = Communicator::from_env(make_config(options, device, ordinal));
  const std::unique_ptr<Meeting> meeting = options.seat.meeting_fd >= 0
                                               ? take_seat(options, comm.rank(), comm.world())
                                               : find_meeting(comm, *buffers, meeting_limit_s(options));
  try {
    return measure_rows(options, comm, *buffers, work.get(), *meeting, turns, arguments);
  } catch (const ExitError& error) {
    // First the text: a rank that hears of the failure may be gone before this one, and then perf ends this one.
    tell(place.rank, error.what());
    if (turns != nullptr && *error.what() != 0) {
      turns->fail(options.seat.group, fmt::format("rank {}: {}", place.rank, error.what()));
    }
    meeting->fail(error.code());
    throw ExitError(error.code(), "");
  } catch (...) {
    meeting->fail(kExitBroken);
    throw;
  }
}

}  // namespace

int perf_rank(const PerfOptions& options, const session::Place& place, const std::vector<std::string>& arguments) {
  std::unique_ptr<Turns> turns;
  const auto end = [&](const char* text, int code) {
    tell(place.rank, text);
    // Without its probe a group can do.
    if (turns && *text != 0 && !options.seat.probe) {
      turns->fail(options.seat.group, fmt::format("rank {}: {}", place.rank, text));
    }
    return code;
  };
  try {
    turns = join_turns(options);
    const int group = options.seat.group;
    if (group > 0 && options.against[static_cast<std::size_t>(group) - 1].is_nccl()) {
      nccl_rank(options, place, device_ordinal(options, place), *turns);
      return kExitOk;
    }
    return measure(options, place, turns.get(), arguments);
  } catch (const ExitError& error) {
    return end(error.what(), error.code());
  } catch (const Error& error) {
    return end(error.what(), exit_code_of_setup(error.status()));
  } catch (const std::bad_alloc&) {
    return end("not enough memory for the buffers: take a smaller -e", kExitEnvironment);
  }
}

}  // namespace ringbell::tools
