// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Fibers: ucontext starts one, setjmp/longjmp switch between them, because swapcontext pays a system call each time.
// The checked longjmp refuses to change stacks, so it is not used here.
#undef _FORTIFY_SOURCE
#include "tests/support/scheduler.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace ringbell::test {

namespace {
constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kGuardBytes = 4096;
jmp_buf main_place;
}  // namespace

SeededRandom::SeededRandom(std::uint64_t seed) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  state_ = (z ^ z >> 31) | 1;
}

struct Scheduler::Fiber {
  Fiber() {
    stack = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) {
      std::perror("scheduler: no stack for a fiber");
      std::abort();
    }
  }
  ~Fiber() { munmap(stack, kStackBytes + kGuardBytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void* stack;
  ucontext_t start;
  jmp_buf place;
  bool started = false;
};

Scheduler* Scheduler::current_ = nullptr;

Scheduler::Scheduler() { current_ = this; }
Scheduler::~Scheduler() {
  if (current_ == this) current_ = nullptr;
}

void Scheduler::begin(std::uint64_t seed, std::uint64_t step_limit) {
  current_ = this;
  threads_.clear();
  random_ = SeededRandom(seed);
  seed_ = seed;
  steps_ = traced_ = now_ns_ = 0;
  step_limit_ = step_limit;
  essential_left_ = 0;
  failure_.clear();
  constexpr std::array<std::uint32_t, 4> kMasks = {0x0, 0x1, 0x7, 0x1f};
  constexpr std::array<std::uint32_t, 3> kSleepMasks = {0x3f, 0x1ff, 0xffff};
  pace_.switch_mask = kMasks[random_.below(4)];
  pace_.drain_mask = kMasks[1 + random_.below(3)];
  pace_.late_plain = random_.one_in(3) ? 0 : 2;
  pace_.late_strong = random_.one_in(2) ? 0 : 8;
  pace_.step_ns = random_.one_in(2) ? 10 : 100;
  pace_.sleep_mask = kSleepMasks[random_.below(3)];
}

unsigned Scheduler::add(std::string name, Body body, bool essential) {
  const auto number = static_cast<unsigned>(threads_.size());
  if (number == kMaxModelThreads) {
    std::fprintf(stderr, "scheduler: more than %u threads: raise kMaxModelThreads\n", kMaxModelThreads);
    std::abort();
  }
  if (fibers_.size() == number) fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_[number];
  fiber.started = false;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = static_cast<char*>(fiber.stack) + kGuardBytes;
  fiber.start.uc_stack.ss_size = kStackBytes;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, &Scheduler::enter, 0);
  threads_.push_back({std::move(name), std::move(body), essential});
  essential_left_ += essential ? 1 : 0;
  return number;
}

void Scheduler::enter() {
  Scheduler& s = *current_;
  s.threads_[s.self_].body();
  Thread& self = s.threads_[s.self_];
  self.done = true;
  if (self.essential && --s.essential_left_ == 0) s.leave_to_main();
  s.switch_to(s.pick(true));
  std::abort();  // a thread that is done is never picked
}

bool Scheduler::run() {
  if (_setjmp(main_place) == 0) {
    self_ = random_.below(static_cast<std::uint32_t>(threads_.size()));
    Fiber& first = *fibers_[self_];
    first.started = true;
    setcontext(&first.start);
  }
  return failure_.empty();
}

void Scheduler::leave_to_main() { _longjmp(main_place, 1); }

void Scheduler::fail(std::string reason) {
  failure_ = std::move(reason);
  leave_to_main();
}

void Scheduler::yield() {
  if (++steps_ > step_limit_) fail("no end in sight: a lost wake-up, a deadlock or a livelock");
  now_ns_ += pace_.step_ns;
  if (random_.one_in(2)) drain_();
  switch_away(true);
}

void Scheduler::block() {
  threads_[self_].blocked = true;
  switch_away(true);
}

void Scheduler::switch_away(bool wants_other) {
  if ((random_.next() >> 20 & pace_.sleep_mask) == 0) {
    threads_[self_].asleep_until = steps_ + (std::uint64_t{16} << random_.below(7));
  }
  const unsigned next = pick(wants_other);
  if (next != self_) switch_to(next);
}

unsigned Scheduler::pick(bool wants_other) {
  const auto count = static_cast<std::uint32_t>(threads_.size());
  const std::uint32_t first = random_.below(count);
  unsigned asleep = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const unsigned at = (first + i) % count;
    const Thread& thread = threads_[at];
    if (thread.done || thread.blocked || (wants_other && at == self_)) continue;
    if (thread.asleep_until <= steps_) return at;
    asleep = at;
  }
  if (asleep != count) return asleep;
  if (!threads_[self_].done && !threads_[self_].blocked) return self_;
  fail("deadlock: every thread stands at a barrier or waits for a launch");
}

void Scheduler::switch_to(unsigned next) {
  Fiber& from = *fibers_[self_];
  Fiber& to = *fibers_[next];
  self_ = next;
  if (_setjmp(from.place) != 0) return;
  if (to.started) _longjmp(to.place, 1);
  to.started = true;
  setcontext(&to.start);
}

std::string Scheduler::report() const {
  std::string text = "seed " + std::to_string(seed_) + ", step " + std::to_string(steps_) + ", ";
  text += (self_ < threads_.size() ? threads_[self_].name : "?") + ": " + failure_ + "\n";
  // Polls repeat: each step stands where it was last, with how often.
  std::vector<std::pair<Step, unsigned>> last;
  const std::uint64_t oldest = traced_ > kKept ? traced_ - kKept : 0;
  for (std::uint64_t i = traced_; i-- > oldest && last.size() < kTraced;) {
    const Step& step = trace_[i % kKept];
    const auto same = [&](const auto& other) {
      return other.first.thread == step.thread && other.first.what == step.what && other.first.at == step.at &&
             other.first.value == step.value;
    };
    const auto known = std::find_if(last.begin(), last.end(), same);
    if (known == last.end()) {
      last.emplace_back(step, 1);
    } else {
      ++known->second;
    }
  }
  text += "last " + std::to_string(last.size()) + " steps (thread, operation, place, value):\n";
  for (auto at = last.rbegin(); at != last.rend(); ++at) {
    const auto& [step, times] = *at;
    char line[192];
    std::snprintf(line, sizeof line, "  %-14s %-21s %-28s 0x%llx", threads_[step.thread].name.c_str(), step.what,
                  step.at != nullptr && name_ ? name_(step.at).c_str() : "-",
                  static_cast<unsigned long long>(step.value));
    text += line + (times > 1 ? " (" + std::to_string(times) + " times)\n" : std::string("\n"));
  }
  return text;
}

}  // namespace ringbell::test
