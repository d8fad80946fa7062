// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/cuda_pointer_cache.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ringbell::host {
namespace {

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(CudaPointerCache, KnowsEveryByteOfARangeAndNoneBeside) {
  PointerCache cache;
  EXPECT_FALSE(cache.find(at(0x1000), 1));
  cache.insert({0x1000, 0x2000, true});
  EXPECT_TRUE(cache.find(at(0x1000), 0x1000));
  EXPECT_TRUE(cache.find(at(0x1fff), 1));
  EXPECT_TRUE(cache.find(at(0x1800), 0x800)->plain_device);
  EXPECT_FALSE(cache.find(at(0x1800), 0x801));
  EXPECT_FALSE(cache.find(at(0xfff), 1));
  EXPECT_FALSE(cache.find(at(0x2000), 1));
  EXPECT_FALSE(cache.find(at(0x1800), ~std::uint64_t{0}));
}

TEST(CudaPointerCache, TheNewerWordAboutAnAddressCounts) {
  PointerCache cache;
  cache.insert({0x1000, 0x9000, true});
  cache.insert({0x2000, 0x3000, false});  // freed, and part of it came back as something smaller
  EXPECT_FALSE(cache.find(at(0x2000), 0x1000)->plain_device);
  EXPECT_FALSE(cache.find(at(0x1000), 0x10));
  EXPECT_FALSE(cache.find(at(0x8000), 0x10));
}

TEST(CudaPointerCache, ForgetsTheAllocationAroundAPointer) {
  PointerCache cache;
  cache.insert({0x1000, 0x2000, true});
  cache.insert({0x5000, 0x6000, true});
  cache.forget(at(0x1abc));
  cache.forget(at(0x6000));
  EXPECT_FALSE(cache.find(at(0x1000), 1));
  EXPECT_TRUE(cache.find(at(0x5000), 1));
}

TEST(CudaPointerCache, ManyRangesLeaveTheNewestKnown) {
  PointerCache cache;
  constexpr std::uintptr_t kMany = 5 * PointerCache::kRanges;
  for (std::uintptr_t i = 1; i <= kMany; ++i) cache.insert({i * 0x1000, i * 0x1000 + 0x100, true});
  for (std::uintptr_t i = 1; i <= kMany; ++i) {
    const bool known = cache.find(at(i * 0x1000), 0x100).has_value();
    EXPECT_EQ(known, i > kMany - PointerCache::kRanges) << i;
  }
}

TEST(CudaPointerCache, ThreadsNeverSeeHalfARange) {
  PointerCache cache;
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const auto found = cache.find(at(0x1800), 0x100);
        if (found && found->end - found->begin != (found->plain_device ? 0x1000u : 0x2000u)) wrong.fetch_add(1);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    cache.insert({0x1000, 0x2000, true});
    cache.insert({0x1000, 0x3000, false});
    if (i % 64 == 0) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace ringbell::host
