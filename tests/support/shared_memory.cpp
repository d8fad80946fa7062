// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/shared_memory.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ringbell::test {

namespace {

constexpr std::int32_t kNothing = -1;    // Version::released of a relaxed store
constexpr std::int32_t kLineOnly = -2;   // of a flag that orders its line
constexpr std::size_t kMaxPending = 96;  // of one thread: no buffer is endless

std::uint64_t mask_of(const void* at, unsigned bytes) {
  const std::uint64_t low = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
  return low << 8 * (reinterpret_cast<std::uintptr_t>(at) % 8);
}

void raise(Clock& clock, const Clock& other) {
  for (unsigned i = 0; i < kMaxModelThreads; ++i) {
    if (other[i] > clock[i]) clock[i] = other[i];
  }
}

}  // namespace

SharedMemory::SharedMemory(Scheduler& scheduler, std::size_t bytes)
    : scheduler_(scheduler), storage_(new std::byte[bytes + 4096]()), bytes_(bytes), words_(bytes / 8) {
  const auto start = reinterpret_cast<std::uintptr_t>(storage_.get());
  base_ = storage_.get() + (4096 - start % 4096) % 4096;
  scheduler_.on_drain([this] { drain_some(); });
  scheduler_.on_name([this](const void* at) { return place(at); });
}

std::byte* SharedMemory::allocate(const std::string& name, std::size_t bytes, std::size_t alignment) {
  used_ = (used_ + alignment - 1) / alignment * alignment;
  std::byte* at = base_ + used_;
  used_ += bytes;
  if (used_ > bytes_) {
    std::fprintf(stderr, "shared_memory: %s needs more than the %zu bytes given\n", name.c_str(), bytes_);
    std::abort();
  }
  name_part(at, bytes, name);
  return at;
}

void SharedMemory::name_part(const void* begin, std::size_t bytes, const std::string& name) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  parts_.push_back({at, at + bytes, name});
}

std::string SharedMemory::place(const void* at) const {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const Part* best = nullptr;
  for (const Part& part : parts_) {
    if (address < part.begin || address >= part.end) continue;
    if (best == nullptr || part.end - part.begin <= best->end - best->begin) best = &part;
  }
  return best == nullptr ? "?" : best->name + "+" + std::to_string(address - best->begin);
}

void SharedMemory::reset() {
  for (const std::uint32_t at : touched_) {
    Word& word = words_[at];
    word.versions.clear();
    word.seen.fill(0);
    word.pending = 0;
    word.touched = false;
    std::memset(base_ + std::size_t{at} * 8, 0, 8);
  }
  touched_.clear();
  for (auto& buffer : buffers_) buffer.clear();
  for (Clock& clock : clocks_) clock.fill(0);
  fenced_.fill(0);
  forbidden_.clear();
  released_.clear();
  issued_ = 0;
}

std::uint32_t SharedMemory::index(const void* at) const {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - base_);
  if (offset >= used_) {
    char text[96];
    std::snprintf(text, sizeof text, "access outside the model's memory: %p", at);
    scheduler_.fail(text);
  }
  return static_cast<std::uint32_t>(offset / 8);
}

SharedMemory::Word& SharedMemory::touch(std::uint32_t at) {
  Word& word = words_[at];
  if (!word.touched) {
    word.touched = true;
    touched_.push_back(at);
    std::uint64_t value = 0;
    std::memcpy(&value, base_ + std::size_t{at} * 8, 8);
    word.versions.push_back({value, 0, kNothing, 0});
  }
  return word;
}

void SharedMemory::set_initial(std::uint64_t* word, std::uint64_t value) {
  *word = value;
  touch(index(word)).versions[0].value = value;
}

bool SharedMemory::happened(const Version& version, const Clock& clock) const {
  return version.number <= clock[version.writer];
}

std::int32_t SharedMemory::remember(const Clock& clock) {
  released_.push_back(clock);
  return static_cast<std::int32_t>(released_.size()) - 1;
}

void SharedMemory::join(unsigned thread, const Clock& clock) { raise(clocks_[thread], clock); }

std::uint64_t SharedMemory::load(const void* at, unsigned bytes, Load order, const char* what) {
  scheduler_.point();
  const unsigned self = scheduler_.self();
  const std::uint32_t place = index(at);
  Word& word = touch(place);
  Clock& clock = clocks_[self];

  std::size_t chosen = word.versions.size() - 1;
  const std::uint32_t late = order == Load::kPlain ? scheduler_.pace().late_plain : scheduler_.pace().late_strong;
  if (late != 0 && chosen > word.seen[self] && scheduler_.random().one_in(late)) {
    std::size_t oldest = chosen;
    while (oldest > word.seen[self] && !happened(word.versions[oldest], clock)) --oldest;
    chosen -= scheduler_.random().below(static_cast<std::uint32_t>(chosen - oldest + 1));
  }
  const bool again = order != Load::kPlain && word.seen[self] == chosen;
  word.seen[self] = static_cast<std::uint16_t>(chosen);
  std::uint64_t value = word.versions[chosen].value;

  if (word.pending != 0) {
    // Own pending stores and those of lanes behind a barrier, oldest first. At most a few at a time.
    std::uint64_t after = 0;
    for (;;) {
      const Pending* next = nullptr;
      for (unsigned thread = 0; thread < kMaxModelThreads; ++thread) {
        for (const Pending& store : buffers_[thread]) {
          if (store.number > clock[thread]) break;
          if (store.word == place && store.issue > after && (next == nullptr || store.issue < next->issue))
            next = &store;
        }
      }
      if (next == nullptr) break;
      value = (value & ~next->mask) | (next->value & next->mask);
      after = next->issue;
    }
  }
  if (order == Load::kAcquire) {
    const Version& read = word.versions[chosen];
    if (read.released >= 0) raise(clock, released_[static_cast<std::size_t>(read.released)]);
    if (read.released == kLineOnly) learn_line(place, read);
  }
  value = (value & mask_of(at, bytes)) >> 8 * (reinterpret_cast<std::uintptr_t>(at) % 8);
  scheduler_.trace(what, at, value, again);
  return value;
}

void SharedMemory::store(void* at, unsigned bytes, std::uint64_t value, Visible visible, const char* what) {
  scheduler_.point();
  const unsigned self = scheduler_.self();
  const std::uint32_t place = index(at);
  while (buffers_[self].size() >= kMaxPending) drain_one_of(self, clocks_[self][self]);
  scheduler_.trace(what, at, value);
  check_allowed(self, place);
  const std::uint32_t number = ++clocks_[self][self];
  const bool alone = ++touch(place).pending == 1;
  buffers_[self].push_back({place, number, ++issued_, mask_of(at, bytes),
                            value << 8 * (reinterpret_cast<std::uintptr_t>(at) % 8),
                            visible == Visible::kRelease     ? remember(clocks_[self])
                            : visible == Visible::kAfterLine ? kLineOnly
                                                             : kNothing,
                            alone ? kNothing : remember(clocks_[self]), visible});
}

/// The reader of a line's flag sees the line as it was before the flag, and nothing else.
void SharedMemory::learn_line(std::uint32_t place, const Version& flag) {
  const unsigned self = scheduler_.self();
  const std::uint32_t first = place / 16 * 16;
  for (std::uint32_t at = first; at < first + 16; ++at) {
    Word& word = words_[at];
    for (std::size_t i = word.versions.size(); i-- > word.seen[self] + std::size_t{1};) {
      if (word.versions[i].writer != flag.writer || word.versions[i].number >= flag.number) continue;
      word.seen[self] = static_cast<std::uint16_t>(i);
      break;
    }
  }
}

bool SharedMemory::may_drain(unsigned thread, std::size_t position) const {
  const Pending& store = buffers_[thread][position];
  if (store.same_word_after != kNothing) {
    const Clock& before = released_[static_cast<std::size_t>(store.same_word_after)];
    for (unsigned other = 0; other < kMaxModelThreads; ++other) {
      for (const Pending& earlier : buffers_[other]) {
        if (earlier.number > before[other] || earlier.issue >= store.issue) break;
        if (earlier.word == store.word) return false;
      }
    }
  }
  if (store.visible == Visible::kAfterLine) {
    for (std::size_t i = 0; i < position; ++i) {
      if (buffers_[thread][i].word / 16 == store.word / 16) return false;
    }
  }
  if (store.visible == Visible::kRelease) {
    const Clock& before = released_[static_cast<std::size_t>(store.released)];
    for (unsigned other = 0; other < kMaxModelThreads; ++other) {
      if (buffers_[other].empty()) continue;
      const std::uint32_t oldest = buffers_[other].front().number;
      if (other == thread ? oldest < store.number : oldest <= before[other]) return false;
    }
  }
  return true;
}

void SharedMemory::commit(unsigned thread, std::size_t position) {
  const Pending store = buffers_[thread][position];
  check_allowed(thread, store.word);
  buffers_[thread].erase(buffers_[thread].begin() + static_cast<std::ptrdiff_t>(position));
  Word& word = words_[store.word];
  --word.pending;
  const std::uint64_t value = (word.versions.back().value & ~store.mask) | (store.value & store.mask);
  word.versions.push_back({value, store.number, store.released, static_cast<std::uint8_t>(thread)});
  std::memcpy(base_ + std::size_t{store.word} * 8, &value, 8);
}

/// Makes one store of the thread visible, among its first `up_to`. @return false if none may be.
bool SharedMemory::drain_one_of(unsigned thread, std::uint32_t up_to) {
  auto& buffer = buffers_[thread];
  std::size_t count = 0;
  while (count < buffer.size() && buffer[count].number <= up_to) ++count;
  if (count == 0) return false;
  const std::size_t first = scheduler_.random().below(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t position = (first + i) % count;
    if (may_drain(thread, position)) {
      commit(thread, position);
      return true;
    }
  }
  return false;
}

void SharedMemory::drain_some() {
  SeededRandom& random = scheduler_.random();
  const unsigned first = random.below(kMaxModelThreads);
  for (unsigned i = 0; i < kMaxModelThreads; ++i) {
    const unsigned thread = (first + i) % kMaxModelThreads;
    if (buffers_[thread].empty()) continue;
    for (unsigned burst = 1 + (random.one_in(4) ? random.below(16) : 0); burst != 0; --burst) {
      if (!drain_one_of(thread, ~0u)) break;
    }
    return;
  }
}

/// Everything that happens before this point becomes visible, others running in between.
void SharedMemory::drain_covered() {
  for (;;) {
    const Clock& clock = clocks_[scheduler_.self()];
    bool left = false;
    bool drained = false;
    const unsigned first = scheduler_.random().below(kMaxModelThreads);
    for (unsigned i = 0; i < kMaxModelThreads && !drained; ++i) {
      const unsigned thread = (first + i) % kMaxModelThreads;
      if (buffers_[thread].empty() || buffers_[thread].front().number > clock[thread]) continue;
      left = true;
      drained = drain_one_of(thread, clock[thread]);
    }
    if (!left) return;
    if (!drained) drain_some();  // behind another thread's store to the same word
    scheduler_.point();
  }
}

void SharedMemory::settle() {
  forbidden_.clear();  // each store was checked when it was made
  for (bool left = true; left;) {
    left = false;
    for (unsigned thread = 0; thread < kMaxModelThreads; ++thread) {
      while (drain_one_of(thread, ~0u)) {
      }
      left = left || !buffers_[thread].empty();
    }
  }
}

void SharedMemory::fence_seq_cst() {
  scheduler_.point();
  drain_covered();
  scheduler_.trace("fence_seq_cst", nullptr, 0);
  Clock& clock = clocks_[scheduler_.self()];
  raise(clock, fenced_);
  fenced_ = clock;
}

bool SharedMemory::covers(const Pending& store, unsigned thread, std::uint32_t place) const {
  return store.word == place && store.number <= clocks_[scheduler_.self()][thread];
}

/// A read-modify-write finds the newest value: what happens before it of stores to its word becomes visible first.
void SharedMemory::drain_word(std::uint32_t place) {
  for (;;) {
    bool left = false;
    bool drained = false;
    for (unsigned thread = 0; thread < kMaxModelThreads && !drained; ++thread) {
      for (std::size_t i = 0; i < buffers_[thread].size() && !drained; ++i) {
        if (!covers(buffers_[thread][i], thread, place)) continue;
        left = true;
        drained = may_drain(thread, i);
        if (drained) commit(thread, i);
      }
    }
    if (!left) return;
    if (!drained) drain_some();
    scheduler_.point();
  }
}

bool SharedMemory::compare_exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired, Exchange order) {
  scheduler_.point();
  const std::uint32_t place = index(at);
  const bool releases = order == Exchange::kRelease || order == Exchange::kFull;
  if (releases) drain_covered();
  drain_word(place);
  const unsigned self = scheduler_.self();
  Word& word = touch(place);
  const Version latest = word.versions.back();
  Clock& clock = clocks_[self];
  if (latest.released >= 0 && (order == Exchange::kAcquire || order == Exchange::kFull)) {
    raise(clock, released_[static_cast<std::size_t>(latest.released)]);
  }
  word.seen[self] = static_cast<std::uint16_t>(word.versions.size() - 1);
  const bool won = latest.value == expected;
  scheduler_.trace(won ? "compare_exchange won" : "compare_exchange lost", at, won ? desired : latest.value);
  if (!won) return false;
  const std::uint32_t number = ++clock[self];
  // The release that it replaces goes on in it.
  std::int32_t released = latest.released;
  if (releases) {
    Clock both = clock;
    if (latest.released >= 0) raise(both, released_[static_cast<std::size_t>(latest.released)]);
    released = remember(both);
  }
  word.versions.push_back({desired, number, released, static_cast<std::uint8_t>(self)});
  std::memcpy(at, &desired, 8);
  return true;
}

void SharedMemory::forbid_stores(std::uint32_t threads, const void* begin, std::size_t bytes, std::string why) {
  const std::uint32_t first = index(begin);
  forbidden_.push_back({threads, first, first + static_cast<std::uint32_t>(bytes / 8), std::move(why)});
  for (unsigned thread = 0; thread < kMaxModelThreads; ++thread) {
    for (const Pending& store : buffers_[thread]) check_allowed(thread, store.word);
  }
}

void SharedMemory::check_allowed(unsigned thread, std::uint32_t place) {
  for (const Forbidden& forbidden : forbidden_) {
    if ((forbidden.threads >> thread & 1) == 0 || place < forbidden.first_word || place >= forbidden.end_word) continue;
    scheduler_.fail(forbidden.why + ": " + this->place(base_ + std::size_t{place} * 8));
  }
}

}  // namespace ringbell::test
