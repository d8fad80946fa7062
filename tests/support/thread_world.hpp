// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A group of CPU workers on real threads, straight on device/: no segment, no communicator. The calling thread is the
// host of every rank. Template over the memory operations, so that the fault decorator runs in it too.
#ifndef RINGBELL_TESTS_SUPPORT_THREAD_WORLD_HPP_
#define RINGBELL_TESTS_SUPPORT_THREAD_WORLD_HPP_

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/group/group_cpu.hpp"
#include "device/mem/fault_cpu.hpp"
#include "device/queue/producer.hpp"
#include "device/worker/loop.hpp"

namespace ringbell::test {

template <class M>
class ThreadWorld {
 public:
  static constexpr unsigned kDepth = 4;
  static constexpr device::WindowLayout kLayout = {1920, 4, 1, 1920, device::kMaxRanks};

  /// @param plan rank `faulty`'s, null: no fault
  explicit ThreadWorld(unsigned world, std::uint64_t first_epoch = 0, std::uint64_t timeout_ns = 20'000'000'000,
                       unsigned faulty = 0, device::FaultPlan* plan = nullptr)
      : ranks_(world) {
    for (unsigned r = 0; r < world; ++r) make(ranks_[r], r, first_epoch, timeout_ns);
    for (Rank& rank : ranks_) {
      for (unsigned peer = 0; peer < world; ++peer) rank.ctx.window[peer] = ranks_[peer].window.get();
    }
    for (unsigned r = 0; r < world; ++r) {
      ranks_[r].thread = std::thread([this, r, mine = r == faulty ? plan : nullptr] { serve(ranks_[r], mine); });
    }
  }
  ~ThreadWorld() {
    for (Rank& rank : ranks_) {
      M::store_relaxed(&rank.ctx.control->control.request, device::kRequestExit);
      rank.leaving.store(true);
      rank.wanted.fetch_add(1);
      rank.wanted.notify_one();
      rank.thread.join();
    }
  }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  /// Submits one command per rank and waits for all. @return their statuses
  std::vector<Status> call(const std::vector<device::Command>& commands) {
    std::vector<Status> statuses;
    for (unsigned r = 0; r < ranks_.size(); ++r) {
      device::publish_command<M>(ranks_[r].ctx.queue, kDepth, seq_, commands[r]);
      M::fence_seq_cst(device::Edge::kPark);
    }
    for (Rank& rank : ranks_) {
      const device::Completion& line = rank.ctx.completions[seq_ % kDepth];
      std::uint64_t word = 0;
      for (unsigned polls = 1; word >> 8 != seq_ + 1; ++polls) {
        if (polls % 16 == 1) launch_what_parked();
        M::pause(polls);
        word = M::load_acquire(&line.word, device::Edge::kCompletion);
      }
      published_bytes_ += line.info;
      statuses.push_back(device::completion_status(word));
    }
    ++seq_;
    return statuses;
  }

  [[nodiscard]] const device::ControlBlock& control(unsigned r) const { return *ranks_[r].ctx.control; }
  /// Payload bytes that all ranks published, over all calls.
  [[nodiscard]] std::uint64_t published_bytes() const { return published_bytes_; }
  [[nodiscard]] std::uint64_t launches() const { return launches_; }

 private:
  struct FreePages {
    void operator()(std::byte* pages) const { std::free(pages); }
  };
  using Pages = std::unique_ptr<std::byte, FreePages>;

  struct Rank {
    device::WorkerContext ctx{};
    device::Persistent persistent{};
    device::CpuGroup group;
    Pages control;
    Pages window;
    std::uint64_t launched = 0;
    std::atomic<std::uint64_t> wanted{0};
    std::atomic<bool> leaving{false};
    std::thread thread;
  };

  static Pages pages(std::uint64_t bytes) {
    const std::uint64_t whole = (bytes + device::kPageBytes - 1) / device::kPageBytes * device::kPageBytes;
    Pages made(static_cast<std::byte*>(std::aligned_alloc(device::kPageBytes, whole)));
    std::memset(made.get(), 0, whole);
    return made;
  }

  void make(Rank& rank, unsigned r, std::uint64_t first_epoch, std::uint64_t timeout_ns) {
    const auto world = static_cast<unsigned>(ranks_.size());
    rank.control = pages(device::control_bytes(kDepth));
    rank.window = pages(kLayout.window_bytes());
    rank.persistent.next_seq = rank.persistent.op_index = seq_ = first_epoch;
    rank.persistent.direct_epoch = first_epoch;
    const auto set = [&](std::uint64_t offset) { std::memcpy(rank.window.get() + offset, &first_epoch, 8); };
    for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
      rank.persistent.epochs[wire] = {first_epoch, first_epoch};
      set(kLayout.credit_offset(0, wire));
    }
    set(kLayout.tail_offset(0));
    for (unsigned source = 0; source < world; ++source) set(kLayout.direct_tail_offset(source));
    rank.ctx.rank = rank.ctx.ring_index = r;
    rank.ctx.world = world;
    rank.ctx.ring_prev = (r + world - 1) % world;
    rank.ctx.ring_next = (r + 1) % world;
    rank.ctx.queue_depth = kDepth;
    device::set_layout(&rank.ctx, kLayout);
    rank.ctx.control = reinterpret_cast<device::ControlBlock*>(rank.control.get());
    rank.ctx.queue = reinterpret_cast<device::CommandSlot*>(rank.control.get() + device::queue_offset());
    rank.ctx.completions =
        reinterpret_cast<device::Completion*>(rank.control.get() + device::completions_offset(kDepth));
    rank.ctx.persistent = &rank.persistent;
    rank.ctx.idle_park_ns = 1'000'000;
    rank.ctx.lease_ns = 5'000'000;
    rank.ctx.timeout_ns = timeout_ns;
  }

  void serve(Rank& rank, device::FaultPlan* plan) {
    device::CpuFaultHook::of_thread = plan;
    for (std::uint64_t generation = 0;;) {
      rank.wanted.wait(generation);
      if (rank.leaving.load()) return;
      device::run_worker<M>(rank.ctx, rank.group, ++generation);
    }
  }

  void launch_what_parked() {
    for (Rank& rank : ranks_) {
      if (device::claim_launch<M>(&rank.ctx.control->state, &rank.launched) != device::LaunchRight::kMine) continue;
      ++launches_;
      rank.wanted.fetch_add(1);
      rank.wanted.notify_one();
    }
  }

  std::vector<Rank> ranks_;
  std::uint64_t seq_ = 0;
  std::uint64_t published_bytes_ = 0;
  std::uint64_t launches_ = 0;
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_THREAD_WORLD_HPP_
