// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's buffers for the CPU executor: plain memory of this process.
#include <cstdlib>
#include <cstring>
#include <new>

#include "device/config.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_cache.hpp"

namespace ringbell::tools {
namespace {

template <class Word>
void fill_words(void* data, const ValueRule& rule, int rank, std::uint64_t count) {
  auto* const words = static_cast<Word*>(data);
  for (std::uint64_t i = 0; i < count; ++i) {
    words[i] = static_cast<Word>(input_element(rule, static_cast<std::uint32_t>(rank), i));
  }
}

template <class Word>
std::uint64_t count_wrong_words(const void* data, const ValueRule& rule, std::uint64_t count) {
  const auto* const words = static_cast<const Word*>(data);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) wrong += words[i] != static_cast<Word>(expected_element(rule, i)) ? 1U : 0U;
  return wrong;
}

class CpuBuffers final : public Buffers {
 public:
  CpuBuffers(std::uint64_t bytes, bool flushes)
      : in_(allocate(bytes)), out_(allocate(bytes)), scratch_bytes_(flushes ? cpu_flush_bytes() : 0) {
    set_regions(in_.get(), out_.get(), bytes);
    if (flushes) scratch_ = allocate(scratch_bytes_);
  }

  void fill(void* data, const ValueRule& rule, int rank, std::uint64_t count) override {
    switch (rule.bits) {
      case 8: return fill_words<std::uint8_t>(data, rule, rank, count);
      case 16: return fill_words<std::uint16_t>(data, rule, rank, count);
      case 32: return fill_words<std::uint32_t>(data, rule, rank, count);
      default: return fill_words<std::uint64_t>(data, rule, rank, count);
    }
  }

  void poison(void* data, int byte, std::uint64_t bytes) override { std::memset(data, byte, bytes); }

  std::uint64_t count_wrong(const void* data, const ValueRule& rule, std::uint64_t count) override {
    switch (rule.bits) {
      case 8: return count_wrong_words<std::uint8_t>(data, rule, count);
      case 16: return count_wrong_words<std::uint16_t>(data, rule, count);
      case 32: return count_wrong_words<std::uint32_t>(data, rule, count);
      default: return count_wrong_words<std::uint64_t>(data, rule, count);
    }
  }

  void copy_to_host(void* host, const void* data, std::uint64_t bytes) override { std::memcpy(host, data, bytes); }
  void copy_from_host(void* data, const void* host, std::uint64_t bytes) override { std::memcpy(data, host, bytes); }

  // Line by line and not by memset, which may write past the cache.
  void flush() override {
    constexpr std::uint64_t kLine = 64;
    auto* const bytes = static_cast<volatile unsigned char*>(scratch_.get());
    for (std::uint64_t i = 0; i < scratch_bytes_; i += kLine) {
      bytes[i] = static_cast<unsigned char>(bytes[i] + 1);
    }
  }

 private:
  struct Free {
    void operator()(void* data) const noexcept { std::free(data); }
  };
  using Memory = std::unique_ptr<void, Free>;

  static Memory allocate(std::uint64_t bytes) {
    const std::uint64_t pages = (bytes + device::kPageBytes - 1) / device::kPageBytes;
    void* const data = std::aligned_alloc(device::kPageBytes, pages * device::kPageBytes);
    if (data == nullptr) throw std::bad_alloc();
    std::memset(data, 0, pages * device::kPageBytes);  // touched before anything is timed
    return Memory(data);
  }

  Memory in_;
  Memory out_;
  Memory scratch_;
  std::uint64_t scratch_bytes_;
};

}  // namespace

std::unique_ptr<Buffers> make_cpu_buffers(std::uint64_t bytes, bool flushes) {
  return std::make_unique<CpuBuffers>(bytes, flushes);
}

}  // namespace ringbell::tools
