// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/rank_in_set_up.hpp"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>
#include <unistd.h>

#include "host/error.hpp"

namespace ringbell::host {

struct RankInSetUp::Entry {
  std::string segment_name;
  int rank;
  pid_t pid;  // the entries of a fork's parent are not ours
  bool doubled = false;
  std::uint64_t* second = nullptr;

  void tell_peers() const {
    if (!doubled || second == nullptr) return;
    std::uint64_t none = 0;
    std::atomic_ref(*second).compare_exchange_strong(none, static_cast<std::uint64_t>(pid), std::memory_order_acq_rel);
  }
};

// Never destroyed: communicators may be static objects of the application.
std::mutex& RankInSetUp::mutex() {
  static auto* const instance = new std::mutex;
  return *instance;
}
std::vector<std::unique_ptr<RankInSetUp::Entry>>& RankInSetUp::entries() {
  static auto* const instance = new std::vector<std::unique_ptr<Entry>>;
  return *instance;
}

std::string double_claim_text(int rank, std::uint32_t first, std::uint32_t second, bool same_process) {
  const std::string owner = first == 0 ? "of another PID namespace" : std::to_string(first);
  return fmt::format(
      "rank {} is claimed twice: by process {} and {}; give every rank of the session its own number (RANK, "
      "RINGBELL_RANK, ..)",
      rank, owner, same_process ? std::string("again by the same process") : fmt::format("by process {}", second));
}

RankInSetUp::RankInSetUp(std::string segment_name, int rank) {
  auto entry = std::make_unique<Entry>(Entry{std::move(segment_name), rank, getpid()});
  const std::lock_guard lock(mutex());
  for (const auto& other : entries()) {
    if (other->rank != rank || other->pid != entry->pid || other->segment_name != entry->segment_name) continue;
    other->doubled = true;
    other->tell_peers();
    const auto me = static_cast<std::uint32_t>(entry->pid);
    throw_error(Status::kInvalidArgument, double_claim_text(rank, me, me, true));
  }
  entries().push_back(std::move(entry));
  entry_ = entries().back().get();
}

RankInSetUp::~RankInSetUp() {
  if (entry_->pid != getpid()) return;  // a fork's child: its parent may have held the mutex
  const std::lock_guard lock(mutex());
  std::erase_if(entries(), [this](const auto& entry) { return entry.get() == entry_; });
}

bool RankInSetUp::is_doubled() const {
  const std::lock_guard lock(mutex());
  return entry_->doubled;
}

void RankInSetUp::tell_peers_at(std::uint64_t* second) {
  const std::lock_guard lock(mutex());
  entry_->second = second;
  entry_->tell_peers();
}

}  // namespace ringbell::host
