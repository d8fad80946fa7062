// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/agreement.hpp"

#include <cstring>

#include "host/error.hpp"
#include "runtime/build_info.hpp"

namespace ringbell {
namespace {

static_assert(sizeof(Agreement) <= sizeof(host::RankCard::agreement));

struct Field {
  const char* name;
  std::uint64_t Agreement::*value;
  const char* remedy;
};
constexpr Field kFields[] = {
    {"wire version", &Agreement::wire_version, "use the same ringbell on all ranks"},
    {"slot bytes", &Agreement::slot_bytes, "give all ranks the same Config::slot_bytes / RINGBELL_SLOT_BYTES"},
    {"slots", &Agreement::slots, "use the same ringbell on all ranks"},
    {"channels", &Agreement::channels, "give all ranks the same number of channels"},
    {"algorithm", &Agreement::algorithm, "give all ranks the same Config::algorithm / RINGBELL_ALGO"},
    {"protocol", &Agreement::protocol, "give all ranks the same Config::protocol / RINGBELL_PROTO"},
    {"first epoch", &Agreement::first_epoch, "give all ranks the same Config::first_epoch"},
    {"queue depth", &Agreement::queue_depth, "give all ranks the same Config::queue_depth / RINGBELL_QUEUE_DEPTH"},
    {"time-out (ms)", &Agreement::timeout_ms, "give all ranks the same Config::timeout_s / RINGBELL_TIMEOUT_S"},
    {"idle park (us)", &Agreement::idle_park_us,
     "give all ranks the same Config::idle_park_us / RINGBELL_IDLE_PARK_US"},
    {"lease (us)", &Agreement::lease_us, "give all ranks the same Config::lease_us / RINGBELL_LEASE_US"},
    {"leave to share a device", &Agreement::allow_shared_device,
     "give all ranks the same Config::allow_shared_device / RINGBELL_ALLOW_SHARED_DEVICE"},
};

Agreement of_rank(const host::Segment& segment, int rank) {
  Agreement theirs;
  std::memcpy(&theirs, segment.card(rank).agreement, sizeof theirs);
  return theirs;
}

[[noreturn]] void disagree(int mine, int theirs, const std::string& field, const std::string& my_value,
                           const std::string& their_value, const char* remedy) {
  host::throw_error(Status::kInvalidArgument,
                    "ranks disagree on " + field + ": rank " + std::to_string(mine) + " has " + my_value + ", rank " +
                        std::to_string(theirs) + " has " + their_value,
                    remedy);
}

}  // namespace

Agreement make_agreement(const Settings& settings, std::uint32_t slots, std::uint32_t channels, bool ll128_link) {
  Agreement a{};
  std::strncpy(a.version, build_info().version, sizeof a.version - 1);
  a.wire_version = kWireVersion;
  a.slot_bytes = settings.slot_bytes;
  a.slots = slots;
  a.channels = channels;
  a.algorithm = static_cast<std::uint64_t>(settings.algorithm);
  a.protocol = static_cast<std::uint64_t>(settings.protocol);
  a.first_epoch = settings.first_epoch;
  a.queue_depth = settings.queue_depth;
  a.timeout_ms = settings.timeout_ns / 1'000'000;
  a.idle_park_us = settings.idle_park_ns / 1000;
  a.lease_us = settings.lease_ns / 1000;
  a.allow_shared_device = settings.allow_shared_device ? 1 : 0;
  a.ll128_link = ll128_link ? 1 : 0;
  return a;
}

void publish_agreement(host::Segment& segment, const Agreement& agreement) {
  host::RankCard& card = segment.card(segment.rank());
  std::memcpy(card.agreement, &agreement, sizeof agreement);
  std::strncpy(card.library_version, build_info().version, sizeof card.library_version - 1);
}

bool check_agreement(const host::Segment& segment, const Agreement& mine) {
  bool ll128 = mine.ll128_link != 0;
  for (int rank = 0; rank < segment.world(); ++rank) {
    if (rank == segment.rank()) continue;
    const Agreement theirs = of_rank(segment, rank);
    if (std::strncmp(mine.version, theirs.version, sizeof mine.version) != 0) {
      disagree(segment.rank(), rank, "the library version", mine.version, theirs.version,
               "use the same ringbell on all ranks");
    }
    for (const Field& field : kFields) {
      if (mine.*field.value != theirs.*field.value) {
        disagree(segment.rank(), rank, field.name, std::to_string(mine.*field.value),
                 std::to_string(theirs.*field.value), field.remedy);
      }
    }
    ll128 = ll128 && theirs.ll128_link != 0;
  }
  return ll128;
}

}  // namespace ringbell
