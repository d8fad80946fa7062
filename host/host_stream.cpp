// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <unistd.h>

#include "host/ringbell_host_stream.hpp"

namespace ringbell {

using Work = std::function<void()>;

struct HostStream::State {
  mutable std::mutex mutex;  // guards all below but the thread
  std::condition_variable queued;
  std::condition_variable done;
  std::deque<Work> work;
  std::uint64_t launched = 0;
  std::uint64_t finished = 0;
  bool capturing = false;
  bool leaving = false;
  std::vector<Work> captured;
  std::thread thread;
  const pid_t process = getpid();

  void push(Work item) {
    work.push_back(std::move(item));
    ++launched;
    queued.notify_one();
  }

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      queued.wait(lock, [this] { return leaving || !work.empty(); });
      if (work.empty()) return;
      {
        const Work item = std::move(work.front());
        work.pop_front();
        lock.unlock();
        item();
      }  // what it holds goes before the lock is taken: it may be the last owner of anything
      lock.lock();
      ++finished;
      done.notify_all();
    }
  }
};

HostStream::HostStream() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

HostStream::~HostStream() {
  if (state_->process != getpid()) {
    (void)state_.release();  // the thread is the parent's, and would be waited for without end
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->leaving = true;
  }
  state_->queued.notify_one();
  state_->thread.join();
}

void HostStream::launch(Work work) {
  const std::lock_guard lock(state_->mutex);
  if (state_->capturing) {
    state_->captured.push_back(std::move(work));
  } else {
    state_->push(std::move(work));
  }
}

void HostStream::synchronize() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t wanted = state_->launched;
  state_->done.wait(lock, [&] { return state_->finished >= wanted; });
}

bool HostStream::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->finished == state_->launched;
}

void HostStream::begin_capture() {
  const std::lock_guard lock(state_->mutex);
  if (state_->capturing) throw std::logic_error("HostStream: a capture is under way; end it first");
  state_->capturing = true;
}

HostGraph HostStream::end_capture() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->capturing) throw std::logic_error("HostStream: no capture is under way; begin one first");
  state_->capturing = false;
  HostGraph graph;
  graph.work_ = std::make_shared<const std::vector<Work>>(std::move(state_->captured));
  state_->captured.clear();
  return graph;
}

bool HostStream::capturing() const {
  const std::lock_guard lock(state_->mutex);
  return state_->capturing;
}

void HostStream::replay(const HostGraph& graph) {
  if (graph.work_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  if (state_->capturing) throw std::logic_error("HostStream: a replay cannot be captured; end the capture first");
  for (const Work& work : *graph.work_) state_->push(work);
}

}  // namespace ringbell
