// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What all ranks must have in common before the first call, carried in the rank cards and compared by everyone.
#ifndef RINGBELL_RUNTIME_AGREEMENT_HPP_
#define RINGBELL_RUNTIME_AGREEMENT_HPP_

#include <cstdint>
#include <string>

#include "host/segment.hpp"
#include "runtime/settings.hpp"

namespace ringbell {

/// memory: rank card. writer: that rank, before kWritten. readers: all. Compared field by field.
struct Agreement {
  char version[32];
  std::uint64_t wire_version;
  std::uint64_t slot_bytes;
  std::uint64_t slots;
  std::uint64_t channels;
  std::uint64_t algorithm;  // the communicator's setting
  std::uint64_t protocol;
  std::uint64_t first_epoch;
  std::uint64_t queue_depth;
  std::uint64_t timeout_ms;
  std::uint64_t idle_park_us;
  std::uint64_t lease_us;
  std::uint64_t allow_shared_device;
  std::uint64_t
      ll128_link;  // 1: this rank's links keep 128-byte lines whole, as far as it knows; not compared: any 0 = no
};

inline constexpr std::uint64_t kWireVersion = 2;

Agreement make_agreement(const Settings& settings, std::uint32_t slots, std::uint32_t channels, bool ll128_link);
void publish_agreement(host::Segment& segment, const Agreement& agreement);

/// After all ranks are kWritten.
/// @throws Error kInvalidArgument naming the rank, the field and both values
/// @return true if every rank says ll128_link
bool check_agreement(const host::Segment& segment, const Agreement& mine);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_AGREEMENT_HPP_
