// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Which ranks are being set up in this process: two threads that believe to be the same rank find each other here, with
// or without a segment. Two processes find each other by the segment's claims. Internal to host/segment*.cpp.
#ifndef RINGBELL_HOST_RANK_IN_SET_UP_HPP_
#define RINGBELL_HOST_RANK_IN_SET_UP_HPP_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ringbell::host {

/// "rank 1 is claimed twice: by process 12 and by process 13; .." with the remedy. `first` 0: not known here. Equal
/// pids alone do not make one process: they may come from two PID namespaces.
std::string double_claim_text(int rank, std::uint32_t first, std::uint32_t second, bool same_process);

/// Entered while it lives: from the start of a rank's set-up until the rank may begin the next session of this name.
/// Thread-safe; nothing here blocks for longer than a look into a short list.
class RankInSetUp {
 public:
  /// @throws Error kInvalidArgument when a thread of this process is setting up the same rank. That thread then learns
  ///   of it by is_doubled, and the peers by the word that it gave to tell_peers_at.
  RankInSetUp(std::string segment_name, int rank);
  ~RankInSetUp();
  RankInSetUp(const RankInSetUp&) = delete;
  RankInSetUp& operator=(const RankInSetUp&) = delete;

  /// True once another thread came too. To be asked while there is no segment; later the claim's word tells.
  [[nodiscard]] bool is_doubled() const;
  /// Whoever comes too late from now on, or came already, stores its pid there: ClaimLine::second of this rank, valid
  /// as long as this.
  void tell_peers_at(std::uint64_t* second);

 private:
  struct Entry;
  static std::mutex& mutex();
  static std::vector<std::unique_ptr<Entry>>& entries();

  Entry* entry_;
};

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_RANK_IN_SET_UP_HPP_
