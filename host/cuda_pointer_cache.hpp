// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// User ranges that the driver was asked about, remembered: asking costs a microsecond, a hit some nanoseconds. Knows
// nothing of CUDA.
#ifndef RINGBELL_HOST_CUDA_POINTER_CACHE_HPP_
#define RINGBELL_HOST_CUDA_POINTER_CACHE_HPP_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

namespace ringbell::host {

struct KnownRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;     ///< one past the last byte
  bool plain_device = false;  ///< memory of the worker's own GPU
};

/// The newest ranges, a fixed number. Thread-safe; holds a spin lock for some nanoseconds.
class PointerCache {
 public:
  static constexpr std::size_t kRanges = 32;

  /// @return the range that holds all of [pointer, pointer + bytes)
  std::optional<KnownRange> find(const void* pointer, std::uint64_t bytes) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    const Lock lock(busy_);
    // The last hit first: a server uses the same buffers again and again.
    for (std::size_t i = 0; i < kRanges; ++i) {
      const KnownRange& range = ranges_[(last_ + i) % kRanges];
      if (begin >= range.begin && begin < range.end && bytes <= range.end - begin) {
        last_ = (last_ + i) % kRanges;
        return range;
      }
    }
    return std::nullopt;
  }

  /// Replaces the oldest entry, and every entry that overlaps: the driver's newer word counts.
  void insert(const KnownRange& range) noexcept {
    const Lock lock(busy_);
    for (KnownRange& old : ranges_) {
      if (old.begin < range.end && range.begin < old.end) old = {};
    }
    ranges_[next_] = range;
    last_ = next_;
    next_ = (next_ + 1) % kRanges;
  }

  void forget(const void* pointer) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const Lock lock(busy_);
    for (KnownRange& range : ranges_) {
      if (address >= range.begin && address < range.end) range = {};
    }
  }

 private:
  class Lock {
   public:
    explicit Lock(std::atomic_flag& flag) noexcept : flag_(flag) {
      // A holder that lost its core must get one back.
      for (unsigned spins = 1; flag_.test_and_set(std::memory_order_acquire); ++spins) {
        if (spins % 128 == 0) std::this_thread::yield();
      }
    }
    ~Lock() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& flag_;
  };

  std::atomic_flag busy_;
  std::array<KnownRange, kRanges> ranges_{};
  std::size_t last_ = 0;
  std::size_t next_ = 0;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CUDA_POINTER_CACHE_HPP_
