// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// User buffers of tests: 64 guard bytes on both sides, poison before a call, any shift. Host memory; a GPU's buffers
// have the same functions (all_reduce_cases.hpp says which).
#ifndef RINGBELL_TESTS_SUPPORT_BUFFERS_HPP_
#define RINGBELL_TESTS_SUPPORT_BUFFERS_HPP_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ringbell::test {

inline constexpr std::size_t kGuardBytes = 64;

/// Byte `i` of poison: 0x7ff5 again and again, a NaN with a payload in every float of 16 bits or more.
constexpr std::byte poison_byte(std::size_t i) {
  return std::byte{static_cast<unsigned char>(i % 2 == 0 ? 0xf5 : 0x7f)};
}
/// Byte `i` of a guard; neighbours differ.
constexpr std::byte guard_byte(std::size_t i) { return std::byte{static_cast<unsigned char>(0xc3 ^ (i * 29))}; }

/// One allocation that is laid out again for every case, so that old values are there to be found.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes, std::size_t shift = 0) { reset(bytes, shift); }

  /// `bytes` bytes that begin `shift` bytes after a multiple of 64, between fresh guards. Contents are what was there.
  void reset(std::size_t bytes, std::size_t shift = 0) {
    const std::size_t wanted = bytes + shift + 2 * kGuardBytes + kAlign;
    if (memory_.size() < wanted) memory_.assign(wanted, std::byte{0x5a});
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (base + kAlign - 1) / kAlign * kAlign - base + kGuardBytes + shift;
    bytes_ = bytes;
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      memory_[begin_ - kGuardBytes + i] = guard_byte(i);
      memory_[begin_ + bytes_ + i] = guard_byte(i + 7);
    }
  }

  [[nodiscard]] void* data() { return memory_.data() + begin_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] T* as() {
    return static_cast<T*>(data());
  }
  void write(const void* from) {
    if (bytes_ != 0) std::memcpy(data(), from, bytes_);
  }
  void read(void* to) {
    if (bytes_ != 0) std::memcpy(to, data(), bytes_);
  }
  void poison() {
    for (std::size_t i = 0; i < bytes_; ++i) memory_[begin_ + i] = poison_byte(i);
  }
  /// "" or which guard byte was written.
  [[nodiscard]] std::string damage() const {
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (memory_[begin_ - kGuardBytes + i] != guard_byte(i)) return text(kGuardBytes - i, "before");
      if (memory_[begin_ + bytes_ + i] != guard_byte(i + 7)) return text(i, "after");
    }
    return "";
  }

 private:
  static constexpr std::size_t kAlign = 64;
  static std::string text(std::size_t distance, const char* side) {
    return "guard byte " + std::to_string(distance) + " " + side + " the buffer was written";
  }

  std::vector<std::byte> memory_;
  std::size_t begin_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_BUFFERS_HPP_
