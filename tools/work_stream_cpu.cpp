// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <vector>

#include "tools/work_stream.hpp"

namespace ringbell::tools {
namespace {

class CpuWorkStream final : public WorkStream {
 public:
  Stream get() noexcept override { return &stream_; }

  void copy(void* to, const void* from, std::uint64_t bytes) override {
    stream_.launch([to, from, bytes] { std::memcpy(to, from, bytes); });
  }

  void tick() override {
    stream_.launch([this] { ticks_ = ticks_ + 1; });
  }

  void capture(int number, const std::function<void()>& body) override {
    stream_.begin_capture();
    try {
      body();
    } catch (...) {
      static_cast<void>(stream_.end_capture());
      throw;
    }
    const auto index = static_cast<std::size_t>(number);
    if (graphs_.size() <= index) graphs_.resize(index + 1);
    graphs_[index] = stream_.end_capture();
  }
  void replay(int number) override { stream_.replay(graphs_[static_cast<std::size_t>(number)]); }

  void synchronize() override { stream_.synchronize(); }

  double time_us(const std::function<void()>& body) override {
    stream_.launch([this] { begin_ = Clock::now(); });
    body();
    stream_.launch([this] { end_ = Clock::now(); });
    stream_.synchronize();
    return std::chrono::duration<double, std::micro>(end_ - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Not of one measurement: a body that throws leaves a look at the clock on the stream.
  Clock::time_point begin_;
  Clock::time_point end_;
  volatile std::uint64_t ticks_ = 0;  // the stream's thread alone
  HostStream stream_;
  std::vector<HostGraph> graphs_;
};

}  // namespace

std::unique_ptr<WorkStream> make_cpu_work_stream() { return std::make_unique<CpuWorkStream>(); }

}  // namespace ringbell::tools
