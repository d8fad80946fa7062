// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/peer_ringbell.hpp"

#include <cstdlib>

namespace ringbell::tools {

ExitError call_error(const Communicator& comm, Status status) {
  const bool broke = status != Status::kInvalidArgument && status != Status::kUnsupported && status != Status::kAgain &&
                     status != Status::kStale;
  // What breaks a communicator the library has logged as an error: on stderr, unless a file was asked for.
  if (broke && std::getenv("RINGBELL_LOG_FILE") == nullptr) return {exit_code_of_call(status), ""};
  return {exit_code_of_call(status), std::string(status_name(status)) + ": " + comm.last_error()};
}

Status RingbellPeer::call(const PeerCall& call) noexcept {
  const Ticket ticket = comm_.all_reduce(call.in, call.out, call.count, call.dtype, call.op);
  return ticket.status == Status::kOk ? comm_.wait(ticket) : ticket.status;
}

Status RingbellPeer::enqueue(const PeerCall& call) noexcept {
  return comm_.all_reduce_on(work_->get(), call.in, call.out, call.count, call.dtype, call.op);
}

Status RingbellPeer::call_after(const PeerCall& call) noexcept {
  CallOptions options;
  options.after = work_->get();
  const Ticket ticket = comm_.all_reduce(call.in, call.out, call.count, call.dtype, call.op, options);
  return ticket.status == Status::kOk ? comm_.wait(ticket) : ticket.status;
}

Status RingbellPeer::nop() noexcept {
  const Ticket ticket = comm_.nop();
  return ticket.status == Status::kOk ? comm_.wait(ticket) : ticket.status;
}

PeerPath RingbellPeer::path() const {
  const Path path = comm_.stats().last_path;
  return {algorithm_name(path.algorithm), protocol_name(path.protocol), static_cast<int>(path.channels),
          path.chunk_bytes};
}

std::optional<std::uint64_t> RingbellPeer::sent_bytes() const {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : comm_.stats().sent_bytes) total += bytes;
  return total;
}

}  // namespace ringbell::tools
