// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/failure_text.hpp"

#include <fmt/format.h>

#include "runtime/ringbell.hpp"

namespace ringbell {
namespace {

// The packed dtype, operation, algorithm and protocol of a header.
std::string call_text(std::uint64_t call) {
  return fmt::format("{} {} {} {}", dtype_name(static_cast<DType>(call & 0xff)),
                     reduce_op_name(static_cast<ReduceOp>(call >> 8 & 0xff)),
                     algorithm_name(static_cast<Algorithm>(call >> 16 & 0xff)),
                     protocol_name(static_cast<Protocol>(call >> 24 & 0xff)));
}

// The number of a launched call is the place that host code made it at, kept by a graph's node.
std::string launched_mismatch_text(const device::WaitRecord& r) {
  if (r.expected == r.seen) return {};
  return fmt::format(
      "rank {} ran its launched call {} ({}, count {}) while rank {} ran its launched call {} ({}, count {}); all "
      "ranks "
      "must make, and replay, launched calls in the same order",
      r.reporter, r.expected, call_text(r.mine), r.my_count, r.peer, r.seen, call_text(r.theirs), r.peer_count);
}

std::string mismatch_text(const device::WaitRecord& r) {
  if (r.mine == r.theirs && r.my_count == r.peer_count) {
    return fmt::format(
        "rank {} and rank {} disagree on call {} in a field beside count, type and operation (tag, chunk)", r.reporter,
        r.peer, r.seq);
  }
  if (r.mine == r.theirs) {
    return fmt::format("rank {} has count {} and rank {} has count {} in call {}; all ranks must make the same call",
                       r.reporter, r.my_count, r.peer, r.peer_count, r.seq);
  }
  return fmt::format(
      "rank {} has count {} ({}) and rank {} has count {} ({}) in call {}; all ranks must make the same call",
      r.reporter, r.my_count, call_text(r.mine), r.peer, r.peer_count, call_text(r.theirs), r.seq);
}

std::string timeout_text(const device::WaitRecord& r, unsigned rank, std::uint64_t timeout_ns) {
  const std::string waited = fmt::format("{:g} s", static_cast<double>(timeout_ns) * 1e-9);
  const std::string remedy = fmt::format(
      "is rank {} making the same calls? If it is only slow, raise RINGBELL_TIMEOUT_S / Config::timeout_s", r.peer);
  if (r.reporter == rank) {
    return fmt::format(
        "call {} step {}: rank {} waited in vain for the {} of rank {} for {} (expected {}, last seen {}); {}", r.seq,
        r.step, r.reporter, awaited_name(r.what), r.peer, waited, r.expected, r.seen, remedy);
  }
  if (r.reporter == r.peer) {
    return fmt::format("call {}: the worker of rank {} did not start in {}, says rank {}; is its device filled?", r.seq,
                       r.peer, waited, r.reporter);
  }
  return fmt::format("call {}: rank {} waited in vain for the part of rank {}{} for {} and gave up; {}", r.seq,
                     r.reporter, r.peer, r.peer == rank ? " (this one)" : "", waited, remedy);
}

}  // namespace

const char* awaited_name(device::WaitFor what) {
  switch (what) {
    case device::WaitFor::kNothing: return "nothing";
    case device::WaitFor::kLine: return "data line";
    case device::WaitFor::kTail: return "tail";
    case device::WaitFor::kCredit: return "credit";
    case device::WaitFor::kHeader: return "header";
    case device::WaitFor::kTurn: return "turn";
  }
  return "something unknown";
}

std::string failure_text(const device::WaitRecord& r, unsigned rank, std::uint64_t timeout_ns, unsigned way) {
  const bool launched = way == device::kStreamWay;
  const std::string where = fmt::format("{}call {} step {}", launched ? "launched " : "", r.seq, r.step);
  switch (r.status) {
    case Status::kMismatch: {
      std::string text = launched ? launched_mismatch_text(r) : std::string();
      return text.empty() ? mismatch_text(r) : text;
    }
    case Status::kTimeout: return (launched ? "launched " : "") + timeout_text(r, rank, timeout_ns);
    case Status::kInvalidArgument:
      return fmt::format(
          "{}: on rank {} two launched calls of this communicator ran at the same time; their order is not defined: "
          "put them, or replays of their graphs, on one stream or chain the streams by events",
          where, r.reporter);
    case Status::kPeerLost: return fmt::format("{}: rank {} is gone, says rank {}", where, r.peer, r.reporter);
    case Status::kAborted: return fmt::format("{}: rank {} aborted", where, r.reporter);
    default: return fmt::format("{}: {}", where, status_name(r.status));
  }
}

}  // namespace ringbell
