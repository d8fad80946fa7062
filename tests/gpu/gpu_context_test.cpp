// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A communicator leaves no trace in the CUDA state of the thread that uses it: a thread without a context stays without
// one, the runtime's device stays, a foreign device gets no context. Each body runs in a process of its own, because
// contexts outlive a test.
#include <string>

#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {
namespace {

CUcontext current_context() {
  CUcontext context = nullptr;
  require(driver<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent")(&context) == CUDA_SUCCESS, "cuCtxGetCurrent");
  return context;
}
bool has_context(int device) {
  unsigned flags = 0;
  int active = 0;
  require(driver<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState")(device, &flags, &active) ==
              CUDA_SUCCESS,
          "cuDevicePrimaryCtxGetState");
  return active != 0;
}
int current_device() {
  int device = -1;
  cuda_ok(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void set_up_call_and_tear_down(RankSelf& self, int ordinal) {
  Config config = self.config();
  config.device_ordinal = ordinal;
  self.step("join", 60);
  Communicator comm(self.id(), self.rank(), self.world(), config);
  self.step("an empty call");
  require_ok(comm, comm.nop());
  require_ok(comm, comm.park(), "park");
}

// The last GPU, from a thread that has no context and stands on device 0.
void run_without_context(RankSelf& self) {
  const int last = gpu_count() - 1;
  require(current_context() == nullptr, "the process has a context before it asked for one");
  set_up_call_and_tear_down(self, last);
  require(current_context() == nullptr, "the thread was left with a context");
  require(current_device() == 0, "the thread was left on device " + std::to_string(current_device()));
  require(has_context(last), "the rank's device has no context");
  require(last == 0 || !has_context(0), "device 0 was given a context that nobody asked for");
  self.step("the application's first allocation");
  void* memory = nullptr;
  cuda_ok(cudaMalloc(&memory, 16), "cudaMalloc");
  cudaPointerAttributes attributes{};
  cuda_ok(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  require(attributes.device == 0, "the application's memory went to device " + std::to_string(attributes.device));
  cuda_ok(cudaFree(memory), "cudaFree");
}
const RankProgram kWithoutContext("without context", run_without_context);

// A thread on the primary context of device 0, whichever device the rank has.
void run_with_runtime_device(RankSelf& self) {
  cuda_ok(cudaSetDevice(0), "cudaSetDevice");
  const CUcontext before = current_context();
  require(before != nullptr, "cudaSetDevice made no context");
  set_up_call_and_tear_down(self, gpu_count() - 1);
  require(current_context() == before, "the thread was left with another context");
  require(current_device() == 0, "the thread was left on device " + std::to_string(current_device()));
}
const RankProgram kWithRuntimeDevice("with runtime device", run_with_runtime_device);

GroupOptions alone() {
  GroupOptions options;
  options.world = 1;
  options.devices = gpu_count();
  return options;
}

TEST(GpuContext, AThreadWithoutAContextStaysWithoutOneAndForeignDevicesToo) { run_group("without context", alone()); }
TEST(GpuContext, AThreadWithAContextKeepsIt) { run_group("with runtime device", alone()); }

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
