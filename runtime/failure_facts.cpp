// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/failure_facts.hpp"

#include "device/mem/ops_cpu.hpp"
#include "runtime/failure_text.hpp"
#include "runtime/wait_record.hpp"

namespace ringbell {

using device::CpuOps;
using device::Edge;

FailureFacts failure_facts(const device::ControlBlock& control, unsigned rank, std::uint64_t completed,
                           std::uint64_t timeout_ns) {
  FailureFacts facts;
  device::WaitRecord record{};
  unsigned way = device::kHostWay;
  for (unsigned at = 0; at < device::kWays && record.valid == 0; ++at) {
    if (CpuOps::load_acquire(&control.way[at].failure.valid, Edge::kAbort) == 0) continue;
    record = read_record(control.way[at].failure);
    way = at;
  }
  if (record.valid == 0) {
    const std::uint64_t code = CpuOps::load_acquire(&control.control.abort_code, Edge::kAbort);
    if (code == 0) return facts;
    record.seq = completed;
    record.status = device::abort_status(code);
    record.reporter = static_cast<std::uint8_t>(device::abort_reporter(code));
    record.peer = static_cast<std::uint8_t>(device::abort_peer(code));
  }
  facts.status = record.status;
  facts.seq = record.seq;
  facts.launched = way == device::kStreamWay;
  facts.reporter = record.reporter;
  facts.peer = record.peer;
  facts.step = record.step;
  if (record.what != device::WaitFor::kNothing) facts.awaited = awaited_name(record.what);
  facts.text = failure_text(record, rank, timeout_ns, way);
  return facts;
}

}  // namespace ringbell
