// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's half of the queue against a worker played by the test: who launches and when, what tickets answer, how
// parks are counted, what a launch that fails does.
#include "runtime/call_queue.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "device/mem/ops_cpu.hpp"
#include "device/queue/producer.hpp"
#include "host/log.hpp"

namespace ringbell {
namespace {

using device::CpuOps;
using device::Edge;
using device::ParkReason;
using device::Residency;

class FakeExecutor final : public host::Executor {
 public:
  std::byte* create_window(host::Segment&) override { return nullptr; }
  void open_peers(host::Segment&, std::byte**) override {}
  bool ll128_link() const noexcept override { return true; }
  void prepare(host::Segment&, device::WorkerContext&, const device::Persistent&) override {}
  Status launch(std::uint64_t generation) noexcept override {
    if (launch_status != Status::kOk) return launch_status;
    launched.push_back(generation);
    if (control != nullptr) {
      CpuOps::store_release(&control->state.state,
                            device::state_word(generation, Residency::kRunning, ParkReason::kNone), Edge::kState);
    }
    return Status::kOk;
  }
  Status health() noexcept override { return health_status; }
  std::string error_text() const override { return "the fake refuses"; }
  std::string residency_refusal() const override { return {}; }
  Status check_stream(Stream, host::StreamUse) noexcept override { return Status::kOk; }
  Status launch_call(Stream, const device::LaunchedCall&) noexcept override { return Status::kOk; }
  Status write_after(Stream, std::uint64_t* word, std::uint64_t value) noexcept override {
    writes.emplace_back(word, value);
    return write_status;
  }
  Status await_stream(Stream, host::Deadline) noexcept override { return Status::kOk; }
  void await_launched(host::Deadline) noexcept override {}
  bool close_launched(host::Deadline) noexcept override { return true; }
  bool at_rest() noexcept override { return resting; }
  Status check_range(const void*, std::uint64_t, host::PointerInfo*) noexcept override { return Status::kOk; }
  void forget(const void*) noexcept override {}
  void close_peers() noexcept override {}
  void destroy_window(bool) noexcept override {}

  device::ControlBlock* control = nullptr;
  std::vector<std::uint64_t> launched;
  std::vector<std::pair<std::uint64_t*, std::uint64_t>> writes;  // asked of streams, not made
  Status write_status = Status::kOk;
  Status launch_status = Status::kOk;
  std::atomic<Status> health_status{Status::kOk};
  std::atomic<bool> resting{true};
};

class CallQueueTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kDepth = 4;
  CallQueueTest() { executor_.control = &control_; }

  Status submit(Ticket* ticket, Protocol protocol = Protocol::kLL) {
    device::Command command{};
    command.kind = device::CommandKind::kNop;
    command.protocol = protocol;
    return queue_.submit({&command, 1}, ticket);
  }
  Ticket submitted() {
    Ticket ticket;
    EXPECT_EQ(submit(&ticket), Status::kOk);
    return ticket;
  }
  Ticket submitted_after() {
    device::Command command{};
    command.kind = device::CommandKind::kNop;
    command.protocol = Protocol::kLL;
    const After after = Stream{nullptr};
    Ticket ticket;
    EXPECT_EQ(queue_.submit({&command, 1}, &ticket, &after), Status::kOk);
    return ticket;
  }
  /// What the stream does when it gets there.
  void make_write(std::size_t i) {
    CpuOps::store_release(executor_.writes[i].first, executor_.writes[i].second, Edge::kCommand);
  }
  void complete(std::uint64_t seq, Status status = Status::kOk, std::uint64_t bytes = 0) {
    device::Completion& line = completions_[seq % kDepth];
    CpuOps::store_relaxed(&line.info, bytes);
    CpuOps::store_release(&line.word, device::completion_word(seq, status), Edge::kCompletion);
  }
  void state(std::uint64_t generation, Residency residency, ParkReason reason = ParkReason::kNone) {
    CpuOps::store_release(&control_.state.state, device::state_word(generation, residency, reason), Edge::kState);
  }
  void record(Status status, std::uint64_t seq) {
    control_.way[device::kHostWay].failure.status = status;
    control_.way[device::kHostWay].failure.seq = seq;
    control_.way[device::kHostWay].failure.peer = 3;
    control_.way[device::kHostWay].failure.valid = seq + 1;
  }

  device::ControlBlock control_{};
  device::CommandSlot slots_[kDepth]{};
  device::Completion completions_[kDepth]{};
  FakeExecutor executor_;
  CallQueue queue_{executor_, &control_, slots_, completions_, CallQueueLimits{kDepth, 16, 5'000'000, 0}};
};

TEST_F(CallQueueTest, WhatBreaksTheQueueIsToldOnceWithTheCallsThatWereMade) {
  std::vector<std::string> told;
  queue_.when_broken([&](Status status, const std::string& why) {
    const auto records = queue_.recorder().records();
    told.push_back(std::to_string(static_cast<int>(status)) + " " + std::to_string(queue_.submitted()) + " " +
                   std::to_string(static_cast<int>(records.at(0).status)) + " " +
                   std::to_string(static_cast<int>(records.at(1).status)) + " " + why);
  });
  const Ticket good = submitted();
  const Ticket bad = submitted();
  complete(good.seq);
  EXPECT_EQ(queue_.wait(good, host::Deadline::never()), Status::kOk);
  record(Status::kTimeout, bad.seq);
  complete(bad.seq, Status::kTimeout);
  EXPECT_EQ(queue_.wait(bad, host::Deadline::never()), Status::kTimeout);
  EXPECT_EQ(queue_.test(bad), Status::kTimeout);
  queue_.fail(Status::kSystem, "later");
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "later");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].substr(0, 7), "5 2 0 5") << told[0];
}

TEST_F(CallQueueTest, AThreadThatWaitsLongIsTold) {
  const Ticket ticket = submitted();
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::after_ns(1'000'000)), Status::kAgain);
  EXPECT_EQ(control_.host_wait.threads, 0u);
  EXPECT_EQ(control_.host_wait.seq, ticket.seq);
  const std::uint64_t before = host::monotonic_ns();
  std::thread other([&] { EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kOk); });
  while (CpuOps::load_relaxed(&control_.host_wait.threads) == 0) std::this_thread::yield();
  EXPECT_GE(CpuOps::load_relaxed(&control_.host_wait.since_ns), before);
  complete(ticket.seq);
  other.join();
  EXPECT_EQ(control_.host_wait.threads, 0u);
}

TEST_F(CallQueueTest, TheFirstSubmitLaunchesAndNoOtherWhileTheWorkerRuns) {
  for (int i = 0; i < 4; ++i) (void)submitted();
  EXPECT_EQ(executor_.launched, std::vector<std::uint64_t>{1});
  EXPECT_EQ(queue_.stats().launches, 1u);
}

TEST_F(CallQueueTest, CommandsStandInTheirSlotsWithTheirFlags) {
  for (std::uint64_t seq = 0; seq < 12; ++seq) {
    const Ticket ticket = submitted();
    EXPECT_EQ(ticket.seq, seq);
    for (const device::Quad& quad : slots_[seq % kDepth].quad)
      EXPECT_TRUE(device::command_quad_ready(quad, device::command_flag(seq)));
    complete(seq);
    EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kOk);
  }
}

TEST_F(CallQueueTest, ACommandAfterAStreamIsWholeAndLaunchesOnlyWhenTheStreamHasStored) {
  const Ticket ticket = submitted_after();
  ASSERT_EQ(executor_.writes.size(), 1u);
  EXPECT_TRUE(executor_.launched.empty());
  EXPECT_FALSE(device::command_is_ready<CpuOps>(slots_, kDepth, ticket.seq));
  EXPECT_TRUE(queue_.stores_pending());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(queue_.test(ticket), Status::kPending);
    EXPECT_TRUE(queue_.keep_going());
  }
  EXPECT_TRUE(executor_.launched.empty());
  make_write(0);
  EXPECT_FALSE(queue_.stores_pending());
  for (const device::Quad& quad : slots_[0].quad) {
    EXPECT_TRUE(device::command_quad_ready(quad, device::command_flag(0)));
  }
  EXPECT_EQ(queue_.test(ticket), Status::kPending);
  EXPECT_EQ(executor_.launched, std::vector<std::uint64_t>{1});
  complete(0);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kOk);
  EXPECT_FALSE(queue_.keep_going());
}

TEST_F(CallQueueTest, ACommandBehindOneThatIsNotReadyLaunchesNothing) {
  (void)submitted_after();
  (void)submitted();
  EXPECT_TRUE(queue_.keep_going());
  EXPECT_TRUE(executor_.launched.empty());
  make_write(0);
  EXPECT_TRUE(queue_.keep_going());
  EXPECT_EQ(executor_.launched.size(), 1u);
}

TEST_F(CallQueueTest, AnOldLapsCommandIsNotTakenForOneThatIsNotReadyYet) {
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    for (std::uint64_t i = 0; i < kDepth; ++i) {
      const Ticket ticket = submitted_after();
      EXPECT_FALSE(device::command_is_ready<CpuOps>(slots_, kDepth, ticket.seq));
      make_write(executor_.writes.size() - 1);
      EXPECT_TRUE(device::command_is_ready<CpuOps>(slots_, kDepth, ticket.seq));
      complete(ticket.seq);
      EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kOk);
    }
  }
}

TEST_F(CallQueueTest, AStreamThatCannotStoreBreaksTheQueue) {
  executor_.write_status = Status::kSystem;
  (void)submitted_after();
  EXPECT_EQ(queue_.broken_status(), Status::kSystem);
  EXPECT_NE(queue_.broken_text().find("the fake refuses"), std::string::npos);
}

TEST_F(CallQueueTest, AStreamThatCannotStoreDoesNotEndCallsThatTheWorkerIsAt) {
  const Ticket running = submitted();
  executor_.write_status = Status::kSystem;
  (void)submitted_after();
  EXPECT_EQ(queue_.test(running), Status::kPending) << "its buffers are the worker's";
  EXPECT_NE(control_.control.abort_code, 0u) << "the worker is told";
  complete(0);
  EXPECT_EQ(queue_.wait(running, host::Deadline::never()), Status::kOk);
  EXPECT_FALSE(queue_.stores_pending()) << "nobody will make the store";
}

TEST_F(CallQueueTest, IsFullAtItsDepthAndHasRoomAgainAsSoonAsTheOldestCompletes) {
  for (int i = 0; i < 4; ++i) (void)submitted();
  Ticket ticket;
  EXPECT_EQ(submit(&ticket), Status::kAgain);
  complete(0);
  EXPECT_EQ(submit(&ticket), Status::kOk);
  EXPECT_EQ(ticket.seq, 4u);
  EXPECT_EQ(submit(&ticket), Status::kAgain);
  std::vector<device::Command> two(2);
  Ticket tickets[2];
  complete(1);
  EXPECT_EQ(queue_.submit(two, tickets), Status::kAgain) << "all or none";
  complete(2);
  EXPECT_EQ(queue_.submit(two, tickets), Status::kOk);
  EXPECT_EQ(tickets[1].seq, 6u);
}

TEST_F(CallQueueTest, RemembersThatItWasFullForTheTextOfTheLastError) {
  for (int i = 0; i < 4; ++i) (void)submitted();
  EXPECT_EQ(queue_.note(), QueueNote::kNone);
  Ticket ticket;
  EXPECT_EQ(submit(&ticket), Status::kAgain);
  EXPECT_EQ(queue_.note(), QueueNote::kFull);
  queue_.forget_note();
  EXPECT_EQ(queue_.note(), QueueNote::kNone);
}

TEST_F(CallQueueTest, AWaitEndsAfterTheTimeOutWhileAScopeKeepsTheWorkerAwayAndBreaksNothing) {
  EXPECT_EQ(queue_.park_and_stay(host::Deadline::after_seconds(1)), Status::kOk);
  const Ticket ticket = submitted();
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::after_ns(0)), Status::kAgain);
  EXPECT_EQ(queue_.note(), QueueNote::kNone) << "the caller's own deadline needs no text";
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kAgain);
  EXPECT_EQ(queue_.note(), QueueNote::kKeptAway);
  EXPECT_EQ(queue_.note_seq(), ticket.seq);
  EXPECT_FALSE(queue_.broken());
  queue_.unpark();
  complete(ticket.seq);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kOk);
}

TEST_F(CallQueueTest, ATimeOutOfZeroWaitsForEverForAWorkerThatAScopeKeepsAway) {
  CallQueue queue(executor_, &control_, slots_, completions_, CallQueueLimits{kDepth, 16, 0, 0});
  EXPECT_EQ(queue.park_and_stay(host::Deadline::after_seconds(1)), Status::kOk);
  device::Command command{};
  command.kind = device::CommandKind::kNop;
  Ticket ticket;
  EXPECT_EQ(queue.submit({&command, 1}, &ticket), Status::kOk);
  EXPECT_EQ(queue.wait(ticket, host::Deadline::after_ns(50'000'000)), Status::kAgain);
  EXPECT_EQ(queue.note(), QueueNote::kNone) << "only the caller's deadline ended it";
}

TEST_F(CallQueueTest, NotesWhatIsWrongWithATicket) {
  EXPECT_EQ(queue_.wait(Ticket{}, host::Deadline::never()), Status::kAborted);
  EXPECT_EQ(queue_.note(), QueueNote::kNoCall);
  EXPECT_EQ(queue_.wait(Ticket{3, Status::kOk}, host::Deadline::never()), Status::kInvalidArgument);
  EXPECT_EQ(queue_.note(), QueueNote::kUnknownTicket);
  EXPECT_EQ(queue_.note_seq(), 3u);
  const Ticket oldest = submitted();
  complete(oldest.seq);
  for (std::uint64_t seq = 1; seq <= kDepth; ++seq) {
    (void)submitted();
    complete(seq);
  }
  EXPECT_EQ(queue_.wait(oldest, host::Deadline::never()), Status::kStale);
  EXPECT_EQ(queue_.note(), QueueNote::kStaleTicket);
  EXPECT_EQ(queue_.note_seq(), oldest.seq);
  queue_.forget_note();
  EXPECT_EQ(queue_.wait(Ticket{0, Status::kInvalidArgument}, host::Deadline::never()), Status::kInvalidArgument);
  EXPECT_EQ(queue_.note(), QueueNote::kNone) << "the text of the refused call stays";
}

TEST_F(CallQueueTest, AParkedWorkerIsBroughtBackBySubmitByWaitAndByTheServiceThread) {
  Ticket ticket = submitted();
  complete(0);
  state(1, Residency::kParked, ParkReason::kIdle);
  ticket = submitted();
  EXPECT_EQ(executor_.launched.back(), 2u);
  state(2, Residency::kParked, ParkReason::kLease);  // between two operations, the command still there
  EXPECT_EQ(queue_.test(ticket), Status::kPending);
  EXPECT_EQ(executor_.launched.back(), 3u);
  state(3, Residency::kParked, ParkReason::kLease);
  EXPECT_TRUE(queue_.keep_going());
  EXPECT_EQ(executor_.launched.back(), 4u);
  complete(1);
  state(4, Residency::kParked, ParkReason::kIdle);
  EXPECT_FALSE(queue_.keep_going()) << "nothing is outstanding";
  EXPECT_EQ(executor_.launched.back(), 4u);
  const Stats stats = queue_.stats();
  EXPECT_EQ(stats.launches, 4u);
  EXPECT_EQ(stats.parks.idle, 2u);
  EXPECT_EQ(stats.parks.lease, 2u);
}

TEST_F(CallQueueTest, AParkIsCountedOnceHoweverOftenItIsSeen) {
  (void)submitted();
  complete(0);
  state(1, Residency::kParked, ParkReason::kBurstEnd);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue_.stats().parks.burst_end, 1u);
  (void)submitted();
  EXPECT_EQ(queue_.stats().parks.burst_end, 1u);
}

TEST_F(CallQueueTest, ParkingIsReadAgainUntilItResolves) {
  (void)submitted();
  state(1, Residency::kParking, ParkReason::kIdle);
  std::thread worker([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state(1, Residency::kParked, ParkReason::kIdle);
  });
  (void)submitted();
  EXPECT_EQ(executor_.launched.back(), 2u);
  worker.join();
  state(2, Residency::kParking, ParkReason::kIdle);
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state(2, Residency::kRunning);
  });
  (void)submitted();
  EXPECT_EQ(executor_.launched.back(), 2u) << "it came back by itself";
  other.join();
}

TEST_F(CallQueueTest, ALaunchThatFailsIsToldByTheCallAndInTheExecutorsWords) {
  executor_.launch_status = Status::kSystem;
  Ticket ticket;
  EXPECT_EQ(submit(&ticket), Status::kOk);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kSystem);
  EXPECT_EQ(queue_.broken_text(), "the fake refuses");
  EXPECT_EQ(submit(&ticket), Status::kSystem) << "broken";
  EXPECT_EQ(queue_.stats().launches, 0u);
}

TEST_F(CallQueueTest, AFailedCallBreaksTheQueueWithTheWorkersRecord) {
  const Ticket first = submitted();
  const Ticket second = submitted();
  const Ticket third = submitted();
  complete(0);
  record(Status::kTimeout, 1);
  complete(1, Status::kTimeout);
  state(1, Residency::kBroken);
  EXPECT_EQ(queue_.wait(third, host::Deadline::never()), Status::kTimeout) << "never started: what broke the queue";
  EXPECT_NE(queue_.broken_text().find("rank 3"), std::string::npos) << queue_.broken_text();
  EXPECT_EQ(queue_.wait(first, host::Deadline::never()), Status::kOk);
  EXPECT_EQ(queue_.wait(second, host::Deadline::never()), Status::kTimeout);
  Ticket later;
  EXPECT_EQ(submit(&later), Status::kTimeout);
  EXPECT_EQ(queue_.hold(), Status::kTimeout);
  EXPECT_FALSE(queue_.keep_going());
}

TEST_F(CallQueueTest, AnAbortedCallIsNotGivenBackBeforeTheWorkerHasLetGoOfItsBuffers) {
  const Ticket ticket = submitted();
  queue_.abort(device::abort_code(Status::kPeerLost, 0, 2), "rank 2 is gone");
  EXPECT_EQ(CpuOps::load_relaxed(&control_.control.abort_code), device::abort_code(Status::kPeerLost, 0, 2));
  EXPECT_EQ(queue_.test(ticket), Status::kPending);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::after_ns(1'000'000)), Status::kAgain);
  complete(0, Status::kPeerLost);
  state(1, Residency::kBroken);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kPeerLost);
  EXPECT_EQ(queue_.broken_text(), "rank 2 is gone");
}

TEST_F(CallQueueTest, ACallThatCompletedAsItWasAbortedIsComplete) {
  const Ticket first = submitted();
  const Ticket second = submitted();
  complete(0);
  state(1, Residency::kParked, ParkReason::kLease);
  executor_.launch_status = Status::kSystem;  // the worker stays away: nobody tells the peers, nobody touches a buffer
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_EQ(queue_.test(first), Status::kOk);
  EXPECT_EQ(queue_.test(second), Status::kAborted);
}

TEST_F(CallQueueTest, ADeviceThatFailsAfterAnAbortEndsTheWait) {
  const Ticket ticket = submitted();
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_EQ(queue_.test(ticket), Status::kPending);
  executor_.health_status.store(Status::kSystem);
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kSystem);
}

TEST_F(CallQueueTest, AWorkerThatIsLaunchedAndDoesNotComeIsAnErrorOfTheCall) {
  executor_.control = nullptr;  // the launch succeeds, the worker finds no room
  const Ticket ticket = submitted();
  EXPECT_TRUE(queue_.keep_going());
  EXPECT_FALSE(queue_.broken()) << "not at the first look";
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  (void)queue_.keep_going();
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kTimeout);
  EXPECT_NE(queue_.broken_text().find("does not run"), std::string::npos) << queue_.broken_text();
  EXPECT_NE(CpuOps::load_relaxed(&control_.control.abort_code), 0u)
      << "should it come later it must not touch the buffers";
}

// The service thread looks while another thread is between its claim of a launch and the launch.
TEST_F(CallQueueTest, ALaunchUnderWayIsNeverTakenForALateOne) {
  // A limit that no descheduled thread of a busy machine reaches.
  CallQueue queue(executor_, &control_, slots_, completions_, CallQueueLimits{kDepth, 16, 60'000'000'000, 0});
  const auto submit_one = [&] {
    device::Command command{};
    command.kind = device::CommandKind::kNop;
    Ticket ticket;
    EXPECT_EQ(queue.submit({&command, 1}, &ticket), Status::kOk);
  };
  std::atomic<bool> stop{false};
  std::thread service([&] {
    while (!stop) (void)queue.keep_going();
  });
  submit_one();  // launched, and running
  for (std::uint64_t seq = 0; seq < 300000 && !queue.broken(); ++seq) {
    complete(seq);
    state(executor_.launched.back(), Residency::kParked, ParkReason::kIdle);
    submit_one();
    // Only one of the two has launched it; the list is read when it has.
    while (device::state_residency(CpuOps::load_acquire(&control_.state.state, Edge::kState)) != Residency::kRunning) {
      if (queue.broken()) break;
    }
  }
  stop = true;
  service.join();
  EXPECT_FALSE(queue.broken()) << queue.broken_text();
}

TEST_F(CallQueueTest, AnAbortWakesAParkedWorkerSoThatItTellsThePeers) {
  (void)submitted();
  complete(0);
  state(1, Residency::kParked, ParkReason::kIdle);
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_EQ(executor_.launched.back(), 2u);
}

TEST_F(CallQueueTest, AWorkerThatParksWithoutHavingSeenTheAbortIsLaunchedByTheServiceUntilOneHasToldThePeers) {
  EXPECT_FALSE(queue_.relay_abort()) << "nothing to tell";
  (void)submitted();
  complete(0);
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_EQ(executor_.launched.size(), 1u) << "it runs";
  EXPECT_TRUE(queue_.relay_abort());
  state(1, Residency::kParking, ParkReason::kLease);
  EXPECT_TRUE(queue_.relay_abort());
  EXPECT_EQ(executor_.launched.size(), 1u);
  state(1, Residency::kParked, ParkReason::kLease);
  EXPECT_FALSE(queue_.keep_going());
  EXPECT_TRUE(queue_.relay_abort());
  EXPECT_EQ(executor_.launched.back(), 2u);
  EXPECT_TRUE(queue_.relay_abort());
  state(2, Residency::kBroken);
  EXPECT_FALSE(queue_.relay_abort());
  EXPECT_EQ(executor_.launched.size(), 2u);
  EXPECT_EQ(queue_.stats().launches, 2u);
}

TEST_F(CallQueueTest, AnAbortIsToldInsideAScopeToo) {
  EXPECT_EQ(queue_.park_and_stay(host::Deadline::after_seconds(1)), Status::kOk);
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_TRUE(executor_.launched.empty());
  EXPECT_TRUE(queue_.relay_abort());
  EXPECT_EQ(executor_.launched, std::vector<std::uint64_t>{1});
  state(1, Residency::kBroken);
  EXPECT_FALSE(queue_.relay_abort());
  queue_.unpark();
  EXPECT_EQ(executor_.launched.size(), 1u);
}

TEST_F(CallQueueTest, AnAbortThatTheDriverDoesNotLetTellIsSaidOnceAndGivenUp) {
  (void)submitted();
  complete(0);
  state(1, Residency::kParked, ParkReason::kIdle);
  executor_.launch_status = Status::kSystem;
  std::vector<std::string> said;
  host::set_log_handler([&](host::LogLevel level, int, std::string_view text) {
    if (level == host::LogLevel::kWarn) said.emplace_back(text);
  });
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_FALSE(queue_.relay_abort());
  executor_.launch_status = Status::kOk;
  EXPECT_FALSE(queue_.relay_abort());
  host::set_log_handler({});
  EXPECT_EQ(executor_.launched.size(), 1u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("the fake refuses"), std::string::npos) << said[0];
}

// A worker that comes after a failure finds no abort of its own and would run calls that have ended.
TEST_F(CallQueueTest, AfterAFailureNothingIsLaunchedToTellThePeers) {
  executor_.launch_status = Status::kSystem;
  (void)submitted();
  executor_.launch_status = Status::kOk;
  EXPECT_FALSE(queue_.relay_abort());
  EXPECT_TRUE(executor_.launched.empty());
}

TEST_F(CallQueueTest, AnAbortedCallIsGivenBackAtOnceWhileTheWorkerIsAway) {
  EXPECT_EQ(queue_.park_and_stay(host::Deadline::after_seconds(1)), Status::kOk);
  const Ticket ticket = submitted();
  EXPECT_EQ(queue_.test(ticket), Status::kPending);
  queue_.abort(device::abort_code(Status::kAborted, 0, 0), "rank 0 aborted");
  EXPECT_EQ(queue_.wait(ticket, host::Deadline::never()), Status::kAborted);
  EXPECT_TRUE(executor_.launched.empty());
  queue_.unpark();
  EXPECT_EQ(executor_.launched, std::vector<std::uint64_t>{1}) << "the peers must be told";
}

TEST_F(CallQueueTest, RequestsStandInTheControlLineWhileTheyHold) {
  const auto request = [this] { return CpuOps::load_relaxed(&control_.control.request); };
  EXPECT_EQ(queue_.release(), Status::kInvalidArgument);
  EXPECT_EQ(queue_.hold(), Status::kOk);
  EXPECT_EQ(queue_.hold(), Status::kOk);
  EXPECT_EQ(request(), device::kRequestHold);
  EXPECT_EQ(queue_.release(), Status::kOk);
  EXPECT_EQ(request(), device::kRequestHold);
  EXPECT_EQ(queue_.release(), Status::kOk);
  EXPECT_EQ(request(), 0u);
  EXPECT_EQ(queue_.park_and_stay(host::Deadline::after_seconds(1)), Status::kOk) << "generation 0 is parked";
  EXPECT_EQ(request(), device::kRequestPark);
  (void)submitted();
  EXPECT_TRUE(executor_.launched.empty()) << "launched inside the scope";
  queue_.unpark();
  EXPECT_EQ(request(), 0u);
  EXPECT_EQ(executor_.launched, std::vector<std::uint64_t>{1}) << "the queued call runs now";
  queue_.unpark();  // one too many is harmless
  EXPECT_FALSE(queue_.stop(host::Deadline::after_ns(2'000'000))) << "it still runs";
  EXPECT_EQ(request(), device::kRequestExit);
  complete(0);
  state(1, Residency::kParked, ParkReason::kExit);
  EXPECT_TRUE(queue_.stop(host::Deadline::after_seconds(1)));
}

TEST_F(CallQueueTest, ParkIsDoneOnlyWhenTheWorkersCodeIsAtRest) {
  (void)submitted();
  complete(0);
  executor_.resting = false;
  state(1, Residency::kParked, ParkReason::kRequest);
  EXPECT_EQ(queue_.park(host::Deadline::after_ns(2'000'000)), Status::kAgain);
  executor_.resting = true;
  EXPECT_EQ(queue_.park(host::Deadline::after_seconds(1)), Status::kOk);
  EXPECT_EQ(queue_.stats().parks.request, 1u);
}

TEST_F(CallQueueTest, BytesAreCountedByTheProtocolOfTheCall) {
  Ticket ticket;
  for (std::uint64_t seq = 0; seq < 3; ++seq) {
    EXPECT_EQ(submit(&ticket, static_cast<Protocol>(1 + seq)), Status::kOk);
    complete(seq, Status::kOk, 100 * (seq + 1));
  }
  const Stats stats = queue_.stats();
  EXPECT_EQ(stats.calls, 3u);
  EXPECT_EQ(stats.sent_bytes, (std::array<std::uint64_t, kProtocolCount>{0, 100, 200, 300}));
}

}  // namespace
}  // namespace ringbell
