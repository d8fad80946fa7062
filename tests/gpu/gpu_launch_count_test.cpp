// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// No kernel launch per call, seen from outside: a CUPTI callback counts the driver's launches over 100,000 back-to-back
// calls (RINGBELL_TEST_CALLS changes that). At most 2 + 1.2 x elapsed / lease + idle parks, and as many as the library
// says. libcupti is opened at run time; without it the test is skipped. Its few types are declared here, so that
// building needs no CUPTI header. ringbell-test: timeout=200
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::uint64_t kCount = 8;  // float32
constexpr double kLeaseSeconds = 0.010;

// Board words.
constexpr std::size_t kSkipped = 0;
constexpr std::size_t kCuptiError = 1;

// ---- CUPTI's callback interface -------------------------------------------------------------------------------------

constexpr int kDriverApi = 1;  // CUPTI_CB_DOMAIN_DRIVER_API
constexpr int kEnter = 0;      // CUPTI_API_ENTER

struct CallbackData {  // the beginning of CUpti_CallbackData
  int site;
  const char* function_name;
  const void* function_params;
  void* function_return_value;
  const char* symbol_name;
};

/// Counts driver calls that start kernels, in this process, from any thread.
class LaunchCounter {
 public:
  LaunchCounter() {
    for (const std::string& name : candidates()) {
      library_ = dlopen(name.c_str(), RTLD_NOW);
      if (library_ != nullptr) {
        path_ = name;
        break;
      }
    }
    if (library_ == nullptr) return;
    const auto subscribe = function<int (*)(void**, Callback, void*)>("cuptiSubscribe");
    const auto enable = function<int (*)(std::uint32_t, void*, int)>("cuptiEnableDomain");
    result_ = subscribe == nullptr || enable == nullptr ? -1 : subscribe(&subscriber_, &LaunchCounter::on_call, this);
    if (result_ == 0) result_ = enable(1, subscriber_, kDriverApi);
  }
  ~LaunchCounter() {
    const auto unsubscribe = library_ == nullptr ? nullptr : function<int (*)(void*)>("cuptiUnsubscribe");
    if (unsubscribe != nullptr && subscriber_ != nullptr) (void)unsubscribe(subscriber_);
  }
  LaunchCounter(const LaunchCounter&) = delete;
  LaunchCounter& operator=(const LaunchCounter&) = delete;

  [[nodiscard]] bool found() const { return library_ != nullptr; }
  [[nodiscard]] int result() const { return result_; }  ///< a CUptiResult
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t launches() const { return launches_.load(); }
  /// Any driver call: shows that the callback is alive.
  [[nodiscard]] std::uint64_t driver_calls() const { return driver_calls_.load(); }

 private:
  using Callback = void (*)(void*, int, std::uint32_t, const void*);

  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  static void on_call(void* self, int domain, std::uint32_t, const void* data) {
    const auto* call = static_cast<const CallbackData*>(data);
    if (domain != kDriverApi || call->site != kEnter || call->function_name == nullptr) return;
    auto* counter = static_cast<LaunchCounter*>(self);
    ++counter->driver_calls_;
    const std::string_view name(call->function_name);
    const bool launch =
        (name.starts_with("cuLaunch") && !name.starts_with("cuLaunchHostFunc")) || name.starts_with("cuGraphLaunch");
    if (launch) ++counter->launches_;
  }

  static std::vector<std::string> candidates() {
    std::vector<std::string> names;
    if (const char* given = std::getenv("RINGBELL_TEST_CUPTI")) names.emplace_back(given);
    for (const char* name : {"libcupti.so", "libcupti.so.13", "libcupti.so.12"}) names.emplace_back(name);
    for (const char* pattern :
         {"/usr/local/cuda*/lib64/libcupti.so*", "/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*",
          "/usr/local/cuda*/targets/*/lib/libcupti.so*", "/usr/lib/x86_64-linux-gnu/libcupti.so*",
          "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/libcupti.so*",
          "/usr/*/lib/python3*/*-packages/nvidia/*/lib/libcupti.so*"}) {
      glob_t found{};
      if (glob(pattern, 0, nullptr, &found) == 0) {
        for (std::size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
      }
      globfree(&found);
    }
    return names;
  }

  void* library_ = nullptr;
  void* subscriber_ = nullptr;
  std::string path_;
  int result_ = 0;
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint64_t> driver_calls_{0};
};

// ---- the ranks ------------------------------------------------------------------------------------------------------

void run_calls(RankSelf& self) {
  const LaunchCounter counter;
  if (!counter.found() || counter.result() != 0) {
    self.board.words[kSkipped].store(1);
    self.board.words[kCuptiError].store(static_cast<std::uint64_t>(counter.result()));
    return;
  }
  const std::uint64_t calls = number_from_env("RINGBELL_TEST_CALLS", 100'000);
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  const DeviceArray<float> in(kCount);
  const DeviceArray<float> out(kCount);
  const std::vector<float> ones(kCount, 1.0F);
  const Stream stream;
  stream.copy(in.get(), ones.data(), kCount * sizeof(float));
  self.step("join", 40);
  Config config = self.config();
  config.lease_us = static_cast<std::int64_t>(kLeaseSeconds * 1e6);
  Communicator comm(self.id(), self.rank(), self.world(), config);
  self.meet();
  const std::uint64_t counted_before = counter.launches();
  const std::uint64_t said_before = comm.stats().launches;
  const std::uint64_t idle_before = comm.stats().parks.idle;
  self.step(std::to_string(calls) + " calls", 100);
  const Stopwatch watch;
  for (std::uint64_t call = 0; call < calls; ++call) {
    const Status status = comm.wait(comm.all_reduce(in.get(), out.get(), kCount, DType::kFloat32));
    if (status != Status::kOk) require_ok(comm, status, "call " + std::to_string(call));
  }
  const double elapsed = watch.seconds();
  require_ok(comm, comm.park(), "park");  // every launch is over and counted
  const std::uint64_t counted = counter.launches() - counted_before;
  const Stats stats = comm.stats();
  const std::uint64_t said = stats.launches - said_before;
  const std::uint64_t idle_parks = stats.parks.idle - idle_before;
  const double allowed = 2 + 1.2 * elapsed / kLeaseSeconds + static_cast<double>(idle_parks);
  std::printf(
      "rank %d: %llu calls in %.3f s (%.2f us each): %llu launches counted by %s, %llu by the library, at most "
      "%.0f allowed (%llu idle parks); %llu driver calls in all\n",
      self.rank(), static_cast<unsigned long long>(calls), elapsed, elapsed * 1e6 / static_cast<double>(calls),
      static_cast<unsigned long long>(counted), counter.path().c_str(), static_cast<unsigned long long>(said), allowed,
      static_cast<unsigned long long>(idle_parks), static_cast<unsigned long long>(counter.driver_calls()));
  std::fflush(stdout);
  require(counter.driver_calls() > 0, "the CUPTI callback has seen no driver call at all");
  require(counted > 0, "the CUPTI callback has seen no launch, not even the first");
  require(counted == said,
          "CUPTI has counted " + std::to_string(counted) + " launches, the library " + std::to_string(said));
  require(static_cast<double>(counted) <= allowed,
          std::to_string(counted) + " launches, at most " + std::to_string(allowed) + " allowed");
  std::vector<float> result(kCount);
  stream.copy(result.data(), out.get(), kCount * sizeof(float));
  require(result[kCount - 1] == static_cast<float>(self.world()), "the sum is wrong");
  self.step("leave");
}
const RankProgram kCalls("calls", run_calls);

TEST(GpuLaunchCount, BackToBackCallsAreServedByAFewLaunchesALease) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  options.limit_s = 150;
  RankGroup group("calls", options);
  if (!finish_group(group, options.world)) return;
  if (group.board().words[kSkipped].load() == 0) return;
  const auto error = static_cast<std::int64_t>(group.board().words[kCuptiError].load());
  if (error == 0) GTEST_SKIP() << "no libcupti.so on this machine; RINGBELL_TEST_CUPTI names one";
  GTEST_SKIP() << "CUPTI refuses a subscriber here: CUptiResult " << error;
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
