// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A seeded scheduler: model threads are fibers of one real thread, and before every shared access a seed says who goes
// on. Knows no memory (shared_memory.hpp) and no protocol. Not thread-safe: one scheduler runs at a time in a process.
#ifndef RINGBELL_TESTS_SUPPORT_SCHEDULER_HPP_
#define RINGBELL_TESTS_SUPPORT_SCHEDULER_HPP_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ringbell::test {

inline constexpr unsigned kMaxModelThreads = 20;

/// Small and the same on every machine.
class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed = 0);
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  /// 0 .. n - 1
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(((next() >> 32) * n) >> 32); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// One shared access, for the trace of a failure.
struct Step {
  unsigned thread;
  const char* what;
  const void* at;
  std::uint64_t value;
};

/// How one seed explores: drawn from the seed, so that some seeds switch at every access and others rarely.
struct Pace {
  std::uint32_t switch_mask;  // a thread goes on unless random & mask == 0
  std::uint32_t drain_mask;   // the same for draining store buffers
  std::uint32_t late_plain;   // a plain load is late one time in this many, 0: never
  std::uint32_t late_strong;  // a strong load
  std::uint32_t step_ns;      // virtual time of a step
  std::uint32_t sleep_mask;   // now and then a thread stands still for long
};

class Scheduler {
 public:
  static constexpr unsigned kTraced = 20;  // steps in a report
  using Body = std::function<void()>;

  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The scheduler whose run() is active, or that was made last.
  static Scheduler& current() { return *current_; }

  /// Forgets the threads of the last run.
  void begin(std::uint64_t seed, std::uint64_t step_limit);
  /// @param essential the run ends when all essential threads have returned; the others are then abandoned, so their
  ///        bodies own nothing on their stacks
  /// @return the thread's number
  unsigned add(std::string name, Body body, bool essential);
  /// What store buffers do when the seed says so.
  void on_drain(std::function<void()> drain) { drain_ = std::move(drain); }
  /// What prints the place of a step.
  void on_name(std::function<std::string(const void*)> name) { name_ = std::move(name); }
  /// Runs until the essential threads have returned, or something failed. @return true if nothing failed
  bool run();
  /// After a failed run: seed, reason and the last 20 different steps.
  [[nodiscard]] std::string report() const;

  // The rest is for code that runs as a model thread.
  [[nodiscard]] unsigned self() const { return self_; }
  SeededRandom& random() { return random_; }
  [[nodiscard]] const Pace& pace() const { return pace_; }
  [[nodiscard]] std::uint64_t now_ns() const { return now_ns_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// A scheduling point: before every shared access.
  void point() {
    if (++steps_ > step_limit_) fail("no end in sight: a lost wake-up, a deadlock or a livelock");
    now_ns_ += pace_.step_ns;
    const std::uint64_t bits = random_.next() >> 16;
    if ((bits & pace_.drain_mask) == 0) drain_();
    if ((bits >> 16 & pace_.switch_mask) == 0) switch_away(false);
  }
  /// The thread waits for something: others go first.
  void yield();
  /// Stands still until wake(self()).
  void block();
  void wake(unsigned thread) { threads_[thread].blocked = false; }
  /// @param again nothing new: a load of what the thread saw there before. After a few in a row, they are polls, left
  /// out
  void trace(const char* what, const void* at, std::uint64_t value, bool again = false) {
    std::uint32_t& repeats = threads_[self_].repeats;
    repeats = again ? repeats + 1 : 0;
    if (repeats <= kTracedRepeats) trace_[traced_++ % kKept] = {self_, what, at, value};
  }
  /// Ends the run with a failure; does not return.
  [[noreturn]] void fail(std::string reason);

 private:
  static constexpr unsigned kKept = 256;
  static constexpr std::uint32_t kTracedRepeats = 12;
  struct Fiber;
  struct Thread {
    std::string name;
    Body body;
    bool essential = false;
    bool blocked = false;
    bool done = false;
    std::uint64_t asleep_until = 0;
    std::uint32_t repeats = 0;
  };

  static void enter();
  void switch_away(bool wants_other);
  void switch_to(unsigned next);
  unsigned pick(bool wants_other);
  [[noreturn]] void leave_to_main();

  static Scheduler* current_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Thread> threads_;
  std::function<void()> drain_ = [] {};
  std::function<std::string(const void*)> name_;
  SeededRandom random_;
  Pace pace_{};
  std::array<Step, kKept> trace_{};
  std::uint64_t traced_ = 0;
  std::uint64_t seed_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t step_limit_ = 0;
  std::uint64_t now_ns_ = 0;
  unsigned self_ = 0;
  unsigned essential_left_ = 0;
  std::string failure_;
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_SCHEDULER_HPP_
