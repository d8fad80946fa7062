// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The 128 bytes that name a group of ranks. Installed flat beside ringbell.hpp. How they are made and checked is in
// host/unique_id.hpp; here they are opaque.
#ifndef RINGBELL_UNIQUE_ID_HPP_
#define RINGBELL_UNIQUE_ID_HPP_

#include <cstddef>

namespace ringbell {

inline constexpr std::size_t kUniqueIdBytes = 128;

/// Opaque, trivially copyable: hand it from one rank to the others by any means. It lets processes of the SAME user
/// join the group, so treat it like a password towards nobody else: other users are refused by the kernel's file modes.
struct UniqueId {
  unsigned char bytes[kUniqueIdBytes];
};
static_assert(sizeof(UniqueId) == kUniqueIdBytes);

}  // namespace ringbell

#endif  // RINGBELL_UNIQUE_ID_HPP_
