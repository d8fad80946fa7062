// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A host stream: order, capture and replay, and what is refused.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/ringbell_host_stream.hpp"

namespace ringbell {
namespace {

TEST(HostStream, RunsWorkInOrderAndSynchronizeWaitsForAllOfIt) {
  HostStream stream;
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) stream.launch([&order, i] { order.push_back(i); });
  stream.synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(HostStream, ItsDestructorRunsWhatIsQueued) {
  std::atomic<int> ran{0};
  {
    HostStream stream;
    for (int i = 0; i < 100; ++i) stream.launch([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST(HostStream, ACaptureRunsNothingAndItsGraphRunsAsOftenAsItIsReplayed) {
  HostStream stream;
  int first = 0;
  int second = 0;
  stream.begin_capture();
  EXPECT_TRUE(stream.capturing());
  stream.launch([&] { ++first; });
  stream.launch([&] { second += first; });
  const HostGraph graph = stream.end_capture();
  EXPECT_FALSE(stream.capturing());
  stream.synchronize();
  EXPECT_EQ(first, 0);
  HostStream other;
  for (int i = 0; i < 3; ++i) other.replay(graph);
  other.synchronize();
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 1 + 2 + 3);
  stream.replay(HostGraph{});  // nothing was captured: nothing runs
}

TEST(HostStream, IsIdleWhenAllThatWasQueuedHasRun) {
  HostStream stream;
  EXPECT_TRUE(stream.idle());
  std::atomic<bool> leave{false};
  stream.launch([&leave] {
    while (!leave) std::this_thread::yield();
  });
  EXPECT_FALSE(stream.idle());
  leave = true;
  stream.synchronize();
  EXPECT_TRUE(stream.idle());
}

TEST(HostStream, ADestructorInAChildOfForkDoesNotWaitForTheParentsThread) {
  auto stream = std::make_unique<HostStream>();
  stream->launch([] {});
  stream->synchronize();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);
    stream.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(HostStream, ACaptureInACaptureIsRefusedAndSoIsAnEndWithoutABegin) {
  HostStream stream;
  EXPECT_THROW(stream.end_capture(), std::logic_error);
  stream.begin_capture();
  EXPECT_THROW(stream.begin_capture(), std::logic_error);
  stream.launch([] {});
  EXPECT_THROW(stream.replay([&] {
    HostStream other;
    other.begin_capture();
    other.launch([] {});
    return other.end_capture();
  }()),
               std::logic_error);
}

}  // namespace
}  // namespace ringbell
