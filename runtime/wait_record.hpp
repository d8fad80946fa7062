// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker's record, read by its host. In words it is failure_text.hpp.
#ifndef RINGBELL_RUNTIME_WAIT_RECORD_HPP_
#define RINGBELL_RUNTIME_WAIT_RECORD_HPP_

#include "device/layout/control.hpp"
#include "device/mem/ops_cpu.hpp"

namespace ringbell {

/// Word by word: the worker may write it again meanwhile. The caller has seen that it is complete.
inline device::WaitRecord read_record(const device::WaitRecord& from) {
  device::WaitRecord record{};
  auto* words = reinterpret_cast<std::uint64_t*>(&record);
  const auto* from_words = reinterpret_cast<const std::uint64_t*>(&from);
  for (std::size_t i = 0; i < sizeof record / 8; ++i) words[i] = device::CpuOps::load_relaxed(&from_words[i]);
  return record;
}

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_WAIT_RECORD_HPP_
