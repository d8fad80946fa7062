// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes, derives and checks the 128 bytes that name a group. The type is device/ringbell_unique_id.hpp, public.
#ifndef RINGBELL_HOST_UNIQUE_ID_HPP_
#define RINGBELL_HOST_UNIQUE_ID_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/ringbell_unique_id.hpp"

namespace ringbell::host {

using Token = std::array<std::uint8_t, 16>;

/// A fresh id: token from getrandom. @throws Error(kSystem) when the kernel gives no random bytes.
UniqueId unique_id_create();

/// The same id in every process of this user that gives the same key. The key is not secret and neither is the result:
/// other users are kept out by owner and mode of the segment, not by the token.
UniqueId unique_id_from_key(std::string_view session_key);

/// Throws Error(kInvalidArgument) for bytes that unique_id_create did not make (says what is wrong), or an id of
/// another user (names both uids).
void unique_id_validate(const UniqueId& id);

/// The random part. Precondition: validated.
Token unique_id_token(const UniqueId& id) noexcept;

/// "/ringbell-<uid>-<16 hex>": the segment's name for shm_open. Precondition: validated.
std::string unique_id_segment_name(const UniqueId& id);

/// "/ringbell-<uid>-": what the names of all segments of a user begin with.
std::string segment_name_prefix(std::uint32_t uid);

/// Fills `bytes` from getrandom. @throws Error(kSystem).
void random_bytes(void* bytes, std::size_t size);
/// Lower-case hex.
std::string to_hex(const void* bytes, std::size_t size);
/// FNV-1a with a final mix. Not cryptographic.
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0) noexcept;

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_UNIQUE_ID_HPP_
