// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/service_thread.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>

namespace ringbell::host {
namespace {

std::atomic<unsigned> forks{0};

class Service {
 public:
  void add(Serviced* serviced) {
    const std::lock_guard lock(mutex_);
    if (all_.empty()) start();
    all_.push_back(serviced);
  }

  void remove(Serviced* serviced) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);  // a tick holds it: none runs now
      std::erase(all_, serviced);
      if (all_.empty() && thread_.joinable()) {
        ++epoch_;
        ended = std::move(thread_);
      }
    }
    wake_.notify_all();
    if (ended.joinable()) ended.join();
  }

 private:
  void start() {
    // The application's signals are the application's: this thread takes none.
    sigset_t all_signals;
    sigset_t before;
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &before);
    const unsigned epoch = epoch_;
    thread_ = std::thread([this, epoch] { run(epoch); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run(unsigned epoch) {
    std::unique_lock lock(mutex_);
    while (epoch == epoch_) {
      bool busy = false;
      for (Serviced* serviced : all_) busy = serviced->tick() || busy;
      // system_clock-free: wait_for measures on the monotonic clock.
      wake_.wait_for(lock, std::chrono::microseconds(busy ? kBusyTickUs : kIdleTickUs));
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Serviced*> all_;  // under mutex_
  unsigned epoch_ = 0;          // under mutex_; a thread ends when its own is over
  std::thread thread_;
};

// Never destroyed: a communicator in a global object may outlive every static.
Service& service() {
  static auto* one = [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    return new Service;
  }();
  return *one;
}

}  // namespace

void add_serviced(Serviced* serviced) { service().add(serviced); }
void remove_serviced(Serviced* serviced) noexcept { service().remove(serviced); }
unsigned fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace ringbell::host
