// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell perf` as one rank: joins the group, visits the rows, and on rank 0 tells the results.
#include <algorithm>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/meeting.hpp"
#include "tools/output.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_json.hpp"
#include "tools/perf_measure.hpp"
#include "tools/perf_table.hpp"

namespace ringbell::tools {
namespace {

/// One row to measure.
struct RowPlan {
  DType dtype;
  ReduceOp op;
  std::uint64_t count;
};

std::vector<RowPlan> plan_rows(const PerfOptions& options, bool tell) {
  std::vector<RowPlan> plans;
  for (const DType dtype : options.dtypes) {
    for (const ReduceOp op : options.ops) {
      for (const std::uint64_t size : options.sizes) {
        if (const std::uint64_t count = size / dtype_bytes(dtype)) {
          plans.push_back({dtype, op, count});
        } else if (tell && op == options.ops.front()) {
          complain(fmt::format("ringbell perf: note: {} bytes are below one element of {} ({} bytes): row skipped\n",
                               size, dtype_name(dtype), dtype_bytes(dtype)));
        }
      }
    }
  }
  return plans;
}

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

/// Longer than any call may take: a peer may be checking its buffers.
double meeting_limit_s(const PerfOptions& options) {
  constexpr double kDefault = 30;
  constexpr double kMargin = 60;
  if (options.timeout_s == 0) return 0;
  return 2 * (options.timeout_s < 0 ? kDefault : options.timeout_s) + kMargin;
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
  if (comm.rank() != 0) {
    const std::string path = fmt::format("/proc/{}/fd/{}", place[0], place[1]);
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      throw ExitError(kExitEnvironment, "cannot open rank 0's " + path +
                                            ": ranks in different PID namespaces; let perf start them (--ranks N)");
    }
  }
  auto meeting = std::make_unique<Meeting>(fd, comm.rank(), comm.world(), limit_s);
  meeting->barrier();
  close(fd);
  return meeting;
}

/// On a terminal only; erased before a line of the table is printed, which may be on the same one.
class Progress {
 public:
  Progress(bool show, std::size_t total) : show_(show && isatty(STDERR_FILENO) == 1), total_(total) {}
  void row(std::size_t done, const RowPlan& plan) const {
    constexpr std::size_t kWidth = 30;
    if (!show_) return;
    const std::size_t filled = done * kWidth / total_;
    complain(fmt::format("\r\033[K[{:=<{}}{:<{}}] {}/{} {} {} {} bytes", "", filled, "", kWidth - filled, done, total_,
                         dtype_name(plan.dtype), reduce_op_name(plan.op), plan.count * dtype_bytes(plan.dtype)));
  }
  void erase() const {
    if (show_) complain("\r\033[K");
  }

 private:
  bool show_;
  std::size_t total_;
};

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text = "ringbell";
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == kMeetingOption) {
      ++i;
    } else {
      // Of a path only the last part: results are read on other machines.
      const bool path = arguments[i].substr(0, 1) == "/";
      text += " " + (path ? arguments[i].substr(arguments[i].rfind('/') + 1) : arguments[i]);
    }
  }
  return text;
}

/// Nothing when the text is empty.
void tell(int rank, const char* text) {
  if (*text != 0) complain(fmt::format("ringbell perf: rank {}: {}\n", rank, text));
}

/// A row that is wrong beyond its elements: bytes were sent twice or not at all.
std::string sent_error(const Row& row, int ranks) {
  for (const auto& measured : {row.out_of_place, row.in_place}) {
    if (measured && !measured->sent_as_expected) {
      return fmt::format("ringbell perf: {} bytes of {} {}: the ranks published {} bytes a call, expected {}\n",
                         row.bytes, dtype_name(row.dtype), reduce_op_name(row.op), measured->sent_bytes,
                         row.expected_bytes(ranks));
    }
  }
  return "";
}

/// All rows. @return rank 0's exit code, 0 on the others
int measure_rows(const PerfOptions& options, Communicator& comm, Buffers& buffers, Meeting& meeting,
                 const std::vector<std::string>& arguments) {
  const bool teller = comm.rank() == 0;
  const std::vector<RowPlan> plans = plan_rows(options, teller);
  Measurement measurement(comm, buffers, meeting, options);
  const Progress progress(teller, plans.size());
  std::vector<Row> rows;
  int code = kExitOk;
  const auto tell = [&](const Row& row) {
    rows.push_back(row);
    if (!teller) return;
    progress.erase();
    print(table_row(row, options, comm.world()));
    const std::string error = sent_error(row, comm.world());
    if (!error.empty()) {
      complain(error);
      code = kExitWrong;
    }
  };
  if (teller) print(table_header(options, comm));
  tell(measurement.nop());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    progress.row(i, plans[i]);
    tell(measurement.all_reduce(plans[i].dtype, plans[i].op, plans[i].count));
  }
  if (teller) {
    print(table_footer(rows, options, comm.world()));
    if (total_wrong(rows) != 0) code = kExitWrong;
    if (!options.json_path.empty()) {
      replace_file(options.json_path,
                   json_document(rows, options, command_text(arguments), comm.world(), comm.device()));
    }
  }
  meeting.barrier();  // a rank that ended before could end rank 0 in the middle of its report
  return code;
}

int measure(const PerfOptions& options, const session::Place& place, const std::vector<std::string>& arguments) {
  if (place.rank == 0 && !options.json_path.empty()) check_replaceable(options.json_path);
  const DeviceKind device = perf_device(options);
  const int ordinal = device == DeviceKind::kCuda ? device_ordinal(options, place) : -1;
  // Before the worker: what allocates and loads would wait for it.
  const std::uint64_t bytes =
      std::max<std::uint64_t>(*std::max_element(options.sizes.begin(), options.sizes.end()), 2 * sizeof(std::uint64_t));
  const std::unique_ptr<Buffers> buffers =
      device == DeviceKind::kCuda ? make_cuda_buffers(ordinal, bytes) : make_cpu_buffers(bytes);
  Communicator comm = Communicator::from_env(make_config(options, device, ordinal));
  const double limit_s = meeting_limit_s(options);
  const std::unique_ptr<Meeting> meeting =
      options.meeting_fd >= 0 ? std::make_unique<Meeting>(options.meeting_fd, comm.rank(), comm.world(), limit_s)
                              : find_meeting(comm, *buffers, limit_s);
  try {
    return measure_rows(options, comm, *buffers, *meeting, arguments);
  } catch (const ExitError& error) {
    // First the text: a rank that hears of the failure may be gone before this one, and then perf ends this one.
    tell(place.rank, error.what());
    meeting->fail(error.code());
    throw ExitError(error.code(), "");
  } catch (...) {
    meeting->fail(kExitBroken);
    throw;
  }
}

}  // namespace

int perf_rank(const PerfOptions& options, const session::Place& place, const std::vector<std::string>& arguments) {
  try {
    return measure(options, place, arguments);
  } catch (const ExitError& error) {
    tell(place.rank, error.what());
    return error.code();
  } catch (const Error& error) {
    tell(place.rank, error.what());
    return exit_code_of_setup(error.status());
  } catch (const std::bad_alloc&) {
    tell(place.rank, "not enough memory for the buffers: take a smaller -e");
    return kExitEnvironment;
  }
}

}  // namespace ringbell::tools
