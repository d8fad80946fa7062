// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's stream on CPUs: what a measurement that throws leaves behind.
#include "tools/work_stream.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

// Under a sanitizer this fails if the clock is still read into the stack of the measurement that threw.
TEST(CpuWorkStream, AMeasurementThatThrowsLeavesAStreamThatMeasures) {
  const std::unique_ptr<WorkStream> work = make_cpu_work_stream();
  std::atomic<bool> open{false};
  static_cast<HostStream*>(work->get())->launch([&open] {
    while (!open) std::this_thread::yield();
  });
  EXPECT_THROW(static_cast<void>(work->time_us([] { throw std::runtime_error("a call failed"); })), std::runtime_error);
  open = true;
  work->synchronize();
  EXPECT_GE(work->time_us([&work] { work->tick(); }), 0.0);
}

}  // namespace
}  // namespace ringbell::tools
