// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Packs of 8 and 16 bytes of user memory at any alignment, whole or cut at the end of a message. Touches no byte
// outside [p, p + valid). The aligned whole pack is the inlined path; the rest goes piece by piece, out of line.
#ifndef RINGBELL_DEVICE_MEM_USER_MEMORY_HPP_
#define RINGBELL_DEVICE_MEM_USER_MEMORY_HPP_

#include "device/mem/ops.hpp"

namespace ringbell::device {

namespace user_memory_detail {

/// Largest of 1, 2, 4 that divides address and length.
RINGBELL_HD inline unsigned piece_bytes(std::uintptr_t address, unsigned valid) {
  const auto bits = static_cast<unsigned>(address) | valid | 4u;
  return bits & (0u - bits);
}

template <class M>
RINGBELL_TARGET RINGBELL_NOINLINE std::uint64_t load_pieces(const std::byte* p, unsigned valid) {
  const unsigned piece = piece_bytes(reinterpret_cast<std::uintptr_t>(p), valid);
  std::uint64_t pack = 0;
  for (unsigned i = 0; i < valid; i += piece) {
    const std::uint64_t part = piece == 4   ? M::load_user_u32(p + i)
                               : piece == 2 ? M::load_user_u16(p + i)
                                            : M::load_user_u8(p + i);
    pack |= part << (8 * i);
  }
  return pack;
}

template <class M>
RINGBELL_TARGET RINGBELL_NOINLINE void store_pieces(std::byte* p, std::uint64_t pack, unsigned valid) {
  const unsigned piece = piece_bytes(reinterpret_cast<std::uintptr_t>(p), valid);
  for (unsigned i = 0; i < valid; i += piece) {
    const std::uint64_t part = pack >> (8 * i);
    if (piece == 4) {
      M::store_user_u32(p + i, static_cast<std::uint32_t>(part));
    } else if (piece == 2) {
      M::store_user_u16(p + i, static_cast<std::uint16_t>(part));
    } else {
      M::store_user_u8(p + i, static_cast<std::uint8_t>(part));
    }
  }
}

}  // namespace user_memory_detail

/// Bytes of a pack of `pack_bytes` at `at` that lie inside a range of `bytes`.
RINGBELL_HD constexpr unsigned valid_bytes(std::uint64_t bytes, std::uint64_t at, unsigned pack_bytes) {
  return at >= bytes ? 0u : bytes - at < pack_bytes ? static_cast<unsigned>(bytes - at) : pack_bytes;
}

/// @param valid 0 .. 8 bytes that exist; the others read as 0.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE std::uint64_t load_pack8(const std::byte* p, unsigned valid) {
  if (valid == 8 && reinterpret_cast<std::uintptr_t>(p) % 8 == 0) return M::load_user_u64(p);
  return user_memory_detail::load_pieces<M>(p, valid);
}

/// @param valid 0 .. 8 bytes to write.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE void store_pack8(std::byte* p, std::uint64_t pack, unsigned valid) {
  if (valid == 8 && reinterpret_cast<std::uintptr_t>(p) % 8 == 0) {
    M::store_user_u64(p, pack);
  } else {
    user_memory_detail::store_pieces<M>(p, pack, valid);
  }
}

/// @param valid 0 .. 16 bytes that exist; the others read as 0.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE Quad load_pack16(const std::byte* p, unsigned valid) {
  if (valid == 16 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0) return M::load_user_quad(p);
  const unsigned low = valid < 8 ? valid : 8;
  return Quad{load_pack8<M>(p, low), load_pack8<M>(p + 8, valid - low)};
}

/// @param valid 0 .. 16 bytes to write.
template <class M>
RINGBELL_TARGET RINGBELL_INLINE void store_pack16(std::byte* p, Quad pack, unsigned valid) {
  if (valid == 16 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0) {
    M::store_user_quad(p, pack);
    return;
  }
  const unsigned low = valid < 8 ? valid : 8;
  store_pack8<M>(p, pack.lo, low);
  store_pack8<M>(p + 8, pack.hi, valid - low);
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_USER_MEMORY_HPP_
