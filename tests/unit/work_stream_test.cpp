// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's stream on CPUs: what a measurement that throws leaves behind.
#include "tools/work_stream.hpp"

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace ringbell::tools {
namespace {

/// Runs `action` above a patch of stack that the call before has used. @return false if something wrote into it
[[gnu::noinline]] bool stack_stays(const std::function<void()>& action) {
  constexpr unsigned char kMark = 0xa5;
  volatile unsigned char patch[4096];
  for (volatile unsigned char& byte : patch) byte = kMark;
  action();
  for (const volatile unsigned char& byte : patch) {
    if (byte != kMark) return false;
  }
  return true;
}

TEST(CpuWorkStream, AMeasurementThatThrowsLeavesNoLookAtTheClockThatWritesIntoItsStack) {
  const std::unique_ptr<WorkStream> work = make_cpu_work_stream();
  std::atomic<bool> open{false};
  static_cast<HostStream*>(work->get())->launch([&open] {
    while (!open) std::this_thread::yield();
  });
  EXPECT_THROW(static_cast<void>(work->time_us([] { throw std::runtime_error("a call failed"); })), std::runtime_error);
  EXPECT_TRUE(stack_stays([&] {
    open = true;
    work->synchronize();
  }));
  EXPECT_GE(work->time_us([&work] { work->tick(); }), 0.0);
}

}  // namespace
}  // namespace ringbell::tools
