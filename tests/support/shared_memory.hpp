// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory of model threads, in aligned words of 8 bytes. Every thread has a store buffer: stores become visible in
// any seeded order, except that stores to one word keep theirs (where one happens before the other) and a release waits
// for all that happens before it. Loads see the thread's own pending stores, and may be late: any value that a word
// held since the thread last learned, by an acquire, a barrier or a fence, of a newer one. What happens before what is
// kept in vector clocks over stores.
#ifndef RINGBELL_TESTS_SUPPORT_SHARED_MEMORY_HPP_
#define RINGBELL_TESTS_SUPPORT_SHARED_MEMORY_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/scheduler.hpp"

namespace ringbell::test {

/// For each thread, how many of its stores happen before.
using Clock = std::array<std::uint32_t, kMaxModelThreads>;

enum class Visible : std::uint8_t {
  kAnyTime,    // plain, relaxed
  kAfterLine,  // after this thread's earlier stores to the same 128-byte line
  kRelease,    // after everything that happens before it
};
enum class Load : std::uint8_t { kPlain, kRelaxed, kAcquire };
enum class Exchange : std::uint8_t {
  kRelaxed,
  kAcquire,
  kRelease,
  kFull,  // a fence of this thread's stores, besides
};

class SharedMemory {
 public:
  /// @param bytes of all that allocate() will give
  SharedMemory(Scheduler& scheduler, std::size_t bytes);

  /// Zeroed memory of the model; `name` stands in reports. Before the first run only.
  std::byte* allocate(const std::string& name, std::size_t bytes, std::size_t alignment = 128);
  /// A name for a part of what was allocated.
  void name_part(const void* begin, std::size_t bytes, const std::string& name);
  /// Back to zeroes. Call after Scheduler::begin.
  void reset();
  /// After a run: everything stored becomes visible.
  void settle();
  /// Sets a word before the run.
  void set_initial(std::uint64_t* word, std::uint64_t value);

  // For model threads; each is a scheduling point.
  std::uint64_t load(const void* at, unsigned bytes, Load order, const char* what);
  void store(void* at, unsigned bytes, std::uint64_t value, Visible visible, const char* what);
  void fence_seq_cst();
  bool compare_exchange(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired,
                        Exchange order = Exchange::kFull);

  /// From now on a store of `threads` (bit n: thread n) to this part fails the run, also one that was made before and
  /// becomes visible only now.
  void forbid_stores(std::uint32_t threads, const void* begin, std::size_t bytes, std::string why);

  // Orders that barriers and launches make; no scheduling point.
  [[nodiscard]] const Clock& clock(unsigned thread) const { return clocks_[thread]; }
  void join(unsigned thread, const Clock& clock);

  [[nodiscard]] std::string place(const void* at) const;

 private:
  struct Version {
    std::uint64_t value;
    std::uint32_t number;   // of the writer's stores
    std::int32_t released;  // index into released_; negative: nothing, or only its line
    std::uint8_t writer;
  };
  struct Word {
    std::vector<Version> versions;  // the first is the initial value
    std::array<std::uint16_t, kMaxModelThreads> seen;
    std::uint16_t pending;
    bool touched;
  };
  struct Pending {
    std::uint32_t word;
    std::uint32_t number;
    std::uint64_t issue;
    std::uint64_t mask;
    std::uint64_t value;
    std::int32_t released;
    std::int32_t same_word_after;  // index into released_: earlier stores to the word that happen before, if any
    Visible visible;
  };
  struct Part {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::string name;
  };
  struct Forbidden {
    std::uint32_t threads;
    std::uint32_t first_word;
    std::uint32_t end_word;
    std::string why;
  };

  std::uint32_t index(const void* at) const;
  Word& touch(std::uint32_t at);
  bool happened(const Version& version, const Clock& clock) const;
  void learn_line(std::uint32_t place, const Version& flag);
  bool may_drain(unsigned thread, std::size_t position) const;
  void commit(unsigned thread, std::size_t position);
  void drain_some();
  bool drain_one_of(unsigned thread, std::uint32_t up_to);
  void drain_covered();
  bool covers(const Pending& store, unsigned thread, std::uint32_t place) const;
  void drain_word(std::uint32_t place);
  void check_allowed(unsigned thread, std::uint32_t place);
  std::int32_t remember(const Clock& clock);

  Scheduler& scheduler_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* base_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::vector<Part> parts_;
  std::vector<Word> words_;
  std::vector<std::uint32_t> touched_;
  std::array<std::vector<Pending>, kMaxModelThreads> buffers_;
  std::array<Clock, kMaxModelThreads> clocks_{};
  std::vector<Clock> released_;
  std::vector<Forbidden> forbidden_;
  Clock fenced_{};
  std::uint64_t issued_ = 0;
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_SHARED_MEMORY_HPP_
