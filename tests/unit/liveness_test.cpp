// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Who is alive: the rule as a table, /proc texts, locks and stops of real child processes.
#include "host/liveness.hpp"

#include <functional>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/log.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

constexpr SegmentGeometry kGeometry{kPageBytes, 0};
constexpr std::uint64_t kFresh = kHeartbeatStaleNs - 1;
constexpr std::uint64_t kOld = kHeartbeatStaleNs + 1;

TEST(JudgePeerTest, LostNeedsTheLockFreeAndTheHeartbeatOld) {
  const struct {
    PeerEvidence evidence;
    PeerState state;
  } cases[] = {
      {{.lock_free = false, .heartbeat_age_ns = kFresh}, PeerState::kAlive},
      {{.lock_free = false, .heartbeat_age_ns = kOld}, PeerState::kAlive},
      {{.lock_free = true, .heartbeat_age_ns = kFresh}, PeerState::kLockDropped},
      {{.lock_free = true, .heartbeat_age_ns = kHeartbeatStaleNs}, PeerState::kLockDropped},
      {{.lock_free = true, .heartbeat_age_ns = kOld}, PeerState::kLost},
      {{.lock_free = true, .heartbeat_age_ns = kOld, .run = ProcessRun::kRunning}, PeerState::kLost},  // after exec
      {{.lock_free = true, .heartbeat_age_ns = kOld, .run = ProcessRun::kGone}, PeerState::kLost},
      {{.lock_free = true, .heartbeat_age_ns = kOld, .run = ProcessRun::kSuspended}, PeerState::kSuspended},
      {{.lock_free = false, .heartbeat_age_ns = kOld, .run = ProcessRun::kSuspended}, PeerState::kSuspended},
      {{.same_process = true, .lock_free = true, .heartbeat_age_ns = kOld}, PeerState::kAlive},
      {{.claimed = false, .lock_free = true, .heartbeat_age_ns = kOld}, PeerState::kAlive},
  };
  for (const auto& c : cases) EXPECT_EQ(judge_peer(c.evidence), c.state) << &c - cases;
}

TEST(ProcessStatTest, TheCommandMayHoldAnything) {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21\n";
  for (const char* command : {"(sh)", "(a b)", "(x) R 1 (y))", "()", "(\n)"}) {
    const auto stat = parse_process_stat("42 " + std::string(command) + tail);
    ASSERT_TRUE(stat.has_value()) << command;
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->start_time, 987654u) << command;
  }
  for (const char* bad :
       {"", "42", "42 (sh)", "42 (sh) S 1 2", "42 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"}) {
    EXPECT_FALSE(parse_process_stat(bad).has_value()) << bad;
  }
}

TEST(ProcessIdentityTest, AForksChildIsAnotherProcess) {
  const ProcessIdentity me = self_identity();
  EXPECT_EQ(me.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_NE(me.process_token, 0u);
  EXPECT_EQ(self_identity().process_token, me.process_token);
  EXPECT_EQ(process_run_state(me.pid, me.start_time, me.pid_namespace), ProcessRun::kRunning);
  EXPECT_EQ(process_run_state(me.pid, me.start_time + 1, me.pid_namespace), ProcessRun::kGone) << "pid used again";
  EXPECT_EQ(process_run_state(me.pid, me.start_time, me.pid_namespace + 1), ProcessRun::kUnknown);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessIdentity mine = self_identity();
    _exit(mine.pid == static_cast<std::uint32_t>(getpid()) && mine.process_token != me.process_token ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(process_run_state(static_cast<std::uint32_t>(child), 1, me.pid_namespace), ProcessRun::kGone);
}

/// Rank 0 here, rank 1 in a child that ticks every 10 ms and takes one-letter orders.
class LivenessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarn);
    set_log_handler([this](LogLevel, int, std::string_view text) { lines_.emplace_back(text); });
    const UniqueId id = unique_id_create();
    zero_ = std::make_unique<Segment>(Segment::create_or_open(id, 0, 2, kGeometry, Deadline::after_seconds(10)));
    ASSERT_EQ(pipe2(orders_, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) run_child(id);
    EXPECT_TRUE(eventually([this] { return zero_->phase(1) == Phase::kClaimed; }));
    liveness_ = std::make_unique<Liveness>(*zero_);
  }
  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    ::close(orders_[0]);
    ::close(orders_[1]);
    set_log_handler(nullptr);
  }
  [[noreturn]] void run_child(const UniqueId& id) {
    set_log_handler(nullptr);
    zero_.reset();
    fcntl(orders_[0], F_SETFL, O_NONBLOCK);
    bool ticking = true;
    {
      const Segment one = Segment::create_or_open(id, 1, 2, kGeometry, Deadline::after_seconds(10));
      Liveness mine(one);
      for (char order = 0; order != 'q'; usleep(10'000)) {
        if (read(orders_[0], &order, 1) != 1) order = 0;
        if (order == 'c') ::close(::open(("/dev/shm" + one.name()).c_str(), O_RDONLY | O_CLOEXEC));  // a stray open
        if (order == 's') ticking = false;
        if (order == 't') ticking = true;
        if (ticking && order == 0) mine.tick();
      }
    }
    for (;;) pause();  // the process lives on, its session does not
  }
  void order(char letter) { ASSERT_EQ(write(orders_[1], &letter, 1), 1); }
  static bool eventually(const std::function<bool()>& true_now) {
    for (int i = 0; i < 2000; ++i) {
      if (true_now()) return true;
      usleep(5000);
    }
    return false;
  }
  bool becomes(PeerState state) {
    return eventually([&] { return liveness_->peer(1) == state; });
  }

  std::unique_ptr<Segment> zero_;
  std::unique_ptr<Liveness> liveness_;
  std::vector<std::string> lines_;
  int orders_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST_F(LivenessTest, AKilledPeerIsLostWithinASecond) {
  EXPECT_EQ(liveness_->peer(1), PeerState::kAlive);
  EXPECT_TRUE(liveness_->peer_locked(1));
  kill(child_, SIGKILL);
  const auto start = monotonic_ns();
  EXPECT_TRUE(becomes(PeerState::kLost));
  EXPECT_LT(monotonic_ns() - start, kNanosPerSecond);
  EXPECT_EQ(lines_.size(), 0u) << lines_[0];
  EXPECT_FALSE(liveness_->peer_locked(1));
}

TEST_F(LivenessTest, AStoppedPeerIsSuspendedAndSaidOnce) {
  kill(child_, SIGSTOP);
  EXPECT_TRUE(becomes(PeerState::kSuspended));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(liveness_->peer(1), PeerState::kSuspended);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("rank 1 (pid " + std::to_string(child_) + ") is stopped"), std::string::npos) << lines_[0];
  kill(child_, SIGCONT);
  EXPECT_TRUE(becomes(PeerState::kAlive));
}

TEST_F(LivenessTest, ASilentPeerThatHoldsItsLockIsAlive) {
  order('s');
  usleep(250'000);
  EXPECT_EQ(liveness_->peer(1), PeerState::kAlive);
}

TEST_F(LivenessTest, AStrayCloseDropsTheLockAndTheNextTickTakesItAgain) {
  order('s');
  usleep(50'000);
  order('c');
  ASSERT_TRUE(eventually([this] { return !liveness_->peer_locked(1); }));
  std::atomic_ref(zero_->header().heartbeat[1].beat_ns).store(monotonic_ns(), std::memory_order_relaxed);
  EXPECT_EQ(liveness_->peer(1), PeerState::kLockDropped);
  EXPECT_EQ(lines_.size(), 0u) << "it might as well have died just now";
  order('t');
  EXPECT_TRUE(eventually([this] { return liveness_->peer_locked(1); }));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(liveness_->peer(1), PeerState::kAlive);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("rank 1 (pid " + std::to_string(child_) + ") lives but had lost its lock"),
            std::string::npos)
      << lines_[0];
}

TEST_F(LivenessTest, AFreeLockWithAFreshHeartbeatIsAliveAndSaidOnce) {
  order('s');
  order('c');
  ASSERT_TRUE(eventually([this] { return !liveness_->peer_locked(1); }));
  const auto beat = [this] {
    std::atomic_ref(zero_->header().heartbeat[1].beat_ns).store(monotonic_ns(), std::memory_order_relaxed);
  };
  for (int i = 0; i < 5; ++i) {
    beat();
    EXPECT_EQ(liveness_->peer(1), PeerState::kLockDropped);
  }
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(becomes(PeerState::kLost)) << "no beat any more";
}

TEST_F(LivenessTest, AProcessThatClosedItsSessionIsLostAlthoughItRuns) {
  order('q');
  EXPECT_TRUE(becomes(PeerState::kLost));
  EXPECT_EQ(kill(child_, 0), 0);
}

}  // namespace
}  // namespace ringbell::host
