// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The public Communicator over runtime/rank.hpp: argument checks, errors in words, nothing of its own to run.
#include <array>

#include <fmt/format.h>

#include "host/env.hpp"
#include "host/error.hpp"
#include "host/launch_env.hpp"
#include "host/log.hpp"
#include "host/service_thread.hpp"
#include "host/unique_id.hpp"
#include "runtime/arguments.hpp"
#include "runtime/rank.hpp"

namespace ringbell {
namespace {

constexpr Status kInChild = Status::kUnsupported;  // every call in a child of fork

}  // namespace

class Communicator::Impl {
 public:
  Impl(const UniqueId& id, int rank, int world, int local_rank, const Config& config)
      : forks_(host::fork_generation()), rank_(std::make_unique<Rank>(id, rank, world, local_rank, config)) {}
  ~Impl() {
    // The child of a fork has no worker, no service thread and no right to the segment: it lets go of nothing.
    if (forks_ != host::fork_generation()) (void)rank_.release();
  }

  Rank& rank() const noexcept { return *rank_; }
  /// False in a child of fork.
  bool usable() const noexcept { return forks_ == host::fork_generation(); }

  Status check(const AllReduceCall& call, device::Command* command) noexcept {
    const ArgumentFault fault = find_fault(call);
    if (fault != ArgumentFault::kNone) {
      say([&] { return fault_text(call, fault); });
      return Status::kInvalidArgument;
    }
    return rank_->make_command(call, command);
  }

  /// Keeps the text for last_error; building it may fail for want of memory, and then the status must do.
  template <class Text>
  void say(Text text) noexcept {
    try {
      rank_->set_error(text());
    } catch (...) {
    }
  }

 private:
  const unsigned forks_;
  std::unique_ptr<Rank> rank_;
};

Communicator::Communicator(const UniqueId& id, int rank, int world, const Config& config) {
  host::warn_unknown_variables_once(host::Env::of_process());
  impl_ = std::make_unique<Impl>(id, rank, world, rank, config);
}

Communicator Communicator::from_env(const Config& config) {
  const host::Env env = host::Env::of_process();
  host::warn_unknown_variables_once(env);
  const host::Launch launch = host::resolve_launch(env);
  const host::LogRankScope scope(launch.rank);
  if (!launch.note.empty()) host::log_message(host::LogLevel::kInfo, launch.note);
  Communicator comm{nullptr};
  comm.impl_ =
      std::make_unique<Impl>(host::unique_id_of_launch(launch), launch.rank, launch.world, launch.local_rank, config);
  return comm;
}

Communicator::Communicator(std::nullptr_t) noexcept {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return impl_->rank().rank(); }
int Communicator::world() const noexcept { return impl_->rank().world(); }
DeviceKind Communicator::device() const noexcept { return impl_->rank().settings().device; }

Ticket Communicator::all_reduce(const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op,
                                const CallOptions& options) noexcept {
  Ticket ticket;
  ticket.status = all_reduce_many(std::array{AllReduceCall{in, out, count, dtype, op, options}}, std::span(&ticket, 1));
  return ticket;
}

Status Communicator::all_reduce_many(std::span<const AllReduceCall> calls, std::span<Ticket> tickets) noexcept {
  if (!impl_->usable()) return kInChild;
  if (calls.empty()) return Status::kOk;
  Rank& rank = impl_->rank();
  if (tickets.size() < calls.size() || calls.size() > rank.settings().queue_depth) {
    impl_->say([&] {
      return fmt::format(
          "{} calls with room for {} tickets and a queue of {}; give a ticket for each call, and no more "
          "calls than Config::queue_depth",
          calls.size(), tickets.size(), rank.settings().queue_depth);
    });
    return Status::kInvalidArgument;
  }
  if (calls.size() == 1) {
    device::Command command;
    const Status status = impl_->check(calls[0], &command);
    if (status != Status::kOk) return status;
    const CallOptions& options = calls[0].options;
    return rank.queue().submit({&command, 1}, tickets.data(), options.after ? &options.after : nullptr);
  }
  try {
    std::vector<device::Command> commands(calls.size());
    std::vector<After> afters(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Status status = impl_->check(calls[i], &commands[i]);
      if (status != Status::kOk) {
        rank.set_error(fmt::format("call {} of {}: {}", i, calls.size(), rank.last_error()));
        return status;
      }
      afters[i] = calls[i].options.after;
    }
    return rank.queue().submit(commands, tickets.data(), afters.data());
  } catch (const std::bad_alloc&) {
    return Status::kSystem;
  }
}

Status Communicator::all_reduce_on(Stream stream, const void* in, void* out, std::uint64_t count, DType dtype,
                                   ReduceOp op, const CallOptions& options) noexcept {
  if (!impl_->usable()) return kInChild;
  if (options.after) {
    impl_->say([] {
      return std::string(
          "CallOptions::after is set, but a call on a stream is ordered by that stream; leave it out, or chain the "
          "streams by an event");
    });
    return Status::kInvalidArgument;
  }
  device::Command command;
  const Status status = impl_->check({in, out, count, dtype, op, options}, &command);
  return status == Status::kOk ? impl_->rank().issue_on(stream, command) : status;
}

Status Communicator::check(Stream stream, double deadline_s) noexcept {
  return impl_->usable() ? impl_->rank().check_stream(stream, caller_deadline(deadline_s)) : kInChild;
}

Status Communicator::test(const Ticket& ticket) noexcept {
  return impl_->usable() ? impl_->rank().queue().test(ticket) : kInChild;
}

Status Communicator::wait(const Ticket& ticket, double deadline_s) noexcept {
  return impl_->usable() ? impl_->rank().queue().wait(ticket, caller_deadline(deadline_s)) : kInChild;
}

Status Communicator::wait_all(std::span<const Ticket> tickets, double deadline_s) noexcept {
  if (!impl_->usable()) return kInChild;
  const host::Deadline deadline = caller_deadline(deadline_s);
  Status first = Status::kOk;
  for (const Ticket& ticket : tickets) {
    const Status status = impl_->rank().queue().wait(ticket, deadline);
    if (first == Status::kOk) first = status;
  }
  return first;
}

Status Communicator::hold() noexcept { return impl_->usable() ? impl_->rank().queue().hold() : kInChild; }
Status Communicator::release() noexcept {
  if (!impl_->usable()) return kInChild;
  const Status status = impl_->rank().queue().release();
  if (status != Status::kOk) impl_->say([] { return std::string("release() without hold(); call them in pairs"); });
  return status;
}
Status Communicator::park(double deadline_s) noexcept {
  return impl_->usable() ? impl_->rank().queue().park(caller_deadline(deadline_s)) : kInChild;
}
Status Communicator::park_and_stay(double deadline_s) noexcept {
  return impl_->usable() ? impl_->rank().queue().park_and_stay(caller_deadline(deadline_s)) : kInChild;
}
void Communicator::unpark() noexcept {
  if (impl_->usable()) impl_->rank().queue().unpark();
}

Ticket Communicator::nop() noexcept {
  Ticket ticket;
  if (!impl_->usable()) {
    ticket.status = kInChild;
    return ticket;
  }
  const device::Command command = impl_->rank().nop_command();
  ticket.status = impl_->rank().queue().submit({&command, 1}, &ticket);
  return ticket;
}

void Communicator::abort() noexcept {
  if (impl_->usable()) impl_->rank().abort_here();
}
void Communicator::forget(const void* pointer) noexcept {
  if (impl_->usable()) impl_->rank().forget(pointer);
}

Stats Communicator::stats() const noexcept { return impl_->usable() ? impl_->rank().stats() : Stats{}; }
std::string Communicator::last_error() const {
  if (!impl_->usable()) return "this process is a fork of the one that joined the group; join again with a new id";
  return impl_->rank().last_error();
}
std::string Communicator::describe() const { return impl_->rank().describe(); }

UniqueId unique_id_create() { return host::unique_id_create(); }

void set_log_handler(std::function<void(LogLevel level, int rank, std::string_view text)> handler) {
  if (!handler) {
    host::set_log_handler({});
    return;
  }
  host::set_log_handler([handler = std::move(handler)](host::LogLevel level, int rank, std::string_view text) {
    handler(static_cast<LogLevel>(level), rank, text);
  });
}

}  // namespace ringbell
