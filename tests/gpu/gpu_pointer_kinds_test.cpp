// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Every kind of pointer that a CUDA program can hold, as in and out of host-issued and of launched calls: the right
// result, or an argument error that names it. None of them need be exportable: peers see the library's windows alone.
// ringbell-test: timeout=240
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/ringbell.hpp"
#include "tests/gpu/gpu_memory.hpp"
#include "tests/support/gpu_ranks.hpp"

namespace ringbell::test {
namespace {

constexpr std::size_t kBytes = 1 << 16;
constexpr std::uint64_t kCount = kBytes / sizeof(std::uint32_t);

void driver_ok(CUresult result, const char* what) {
  require(result == CUDA_SUCCESS, std::string(what) + " answers " + std::to_string(static_cast<int>(result)));
}

/// Virtual memory, mapped in two pieces, so that a buffer lies across them. Kept until the process ends.
void* mapped_in_pieces(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::size_t granule = 0;
  driver_ok(driver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
                &granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            "cuMemGetAllocationGranularity");
  CUdeviceptr address = 0;
  driver_ok(driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&address, 2 * granule, 0, 0, 0),
            "cuMemAddressReserve");
  for (std::size_t piece = 0; piece < 2; ++piece) {
    CUmemGenericAllocationHandle handle{};
    driver_ok(driver<decltype(cuMemCreate)>("cuMemCreate")(&handle, granule, &properties, 0), "cuMemCreate");
    driver_ok(driver<decltype(cuMemMap)>("cuMemMap")(address + piece * granule, granule, 0, handle, 0), "cuMemMap");
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  driver_ok(driver<decltype(cuMemSetAccess)>("cuMemSetAccess")(address, 2 * granule, &access, 1), "cuMemSetAccess");
  return reinterpret_cast<void*>(address + granule - kBytes / 2);
}

struct Kind {
  const char* name;
  bool refused;
  std::function<void*()> make;
};

void run_kinds(RankSelf& self) {
  cuda_ok(cudaSetDevice(self.device()), "cudaSetDevice");
  cuda_ok(cudaFree(nullptr), "cudaFree");
  self.step("join", 40);
  Communicator comm(self.id(), self.rank(), self.world(), self.config());
  const Stream stream;
  const auto plain = [] {
    void* pointer = nullptr;
    cuda_ok(cudaMalloc(&pointer, kBytes), "cudaMalloc");
    return pointer;
  };
  const std::vector<Kind> kinds = {
      {"cudaMalloc", false, plain},
      {"cudaMallocAsync", false,
       [&] {
         void* pointer = nullptr;
         cuda_ok(cudaMallocAsync(&pointer, kBytes, stream.get()), "cudaMallocAsync");
         stream.sync();
         return pointer;
       }},
      {"a pool of its own", false,
       [&] {
         cudaMemPoolProps properties{};
         properties.allocType = cudaMemAllocationTypePinned;
         properties.location = {cudaMemLocationTypeDevice, self.device()};
         cudaMemPool_t pool = nullptr;
         cuda_ok(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
         void* pointer = nullptr;
         cuda_ok(cudaMallocFromPoolAsync(&pointer, kBytes, pool, stream.get()), "cudaMallocFromPoolAsync");
         stream.sync();
         return pointer;
       }},
      {"virtual memory mapped in pieces", false, [&] { return mapped_in_pieces(self.device()); }},
      {"managed", false,
       [] {
         void* pointer = nullptr;
         cuda_ok(cudaMallocManaged(&pointer, kBytes), "cudaMallocManaged");
         return pointer;
       }},
      {"pinned host", false,
       [] {
         void* pointer = nullptr;
         cuda_ok(cudaHostAlloc(&pointer, kBytes, cudaHostAllocDefault), "cudaHostAlloc");
         return pointer;
       }},
      {"registered host", false,
       [] {
         void* pointer = std::aligned_alloc(4096, kBytes);
         cuda_ok(cudaHostRegister(pointer, kBytes, cudaHostRegisterDefault), "cudaHostRegister");
         return pointer;
       }},
      {"plain host", true, [] { return std::malloc(kBytes); }},
  };
  std::uint32_t round = 0;
  for (const Kind& kind : kinds) {
    self.step(kind.name);
    void* const in = kind.make();
    void* const out = kind.make();
    std::vector<std::uint32_t> values(kCount);
    for (int way = 0; way < 4; ++way) {  // host-issued and launched, out of place and in place
      ++round;
      const bool launched = way % 2 == 1;
      void* const from = way < 2 ? in : out;
      for (std::uint32_t i = 0; i < kCount; ++i)
        values[i] = (i + round) * (static_cast<std::uint32_t>(self.rank()) + 1);
      if (!kind.refused) stream.copy(from, values.data(), kBytes);
      Status status = Status::kOk;
      if (launched) {
        status = comm.all_reduce_on(stream.get(), from, out, kCount, DType::kUInt32);
        if (status == Status::kOk) status = comm.check(stream.get());
      } else {
        status = comm.wait(comm.all_reduce(from, out, kCount, DType::kUInt32));
      }
      if (self.rank() == 0) {
        std::printf("%-32s %-12s %s\n", kind.name, launched ? "launched" : "host-issued",
                    status == Status::kOk ? "taken" : comm.last_error().c_str());
      }
      if (kind.refused) {
        require(status == Status::kInvalidArgument && contains(comm.last_error(), "host memory"),
                std::string(kind.name) + ": " + status_name(status) + ": " + comm.last_error());
        continue;
      }
      require_ok(comm, status, kind.name);
      stream.copy(values.data(), out, kBytes);
      const auto world = static_cast<std::uint32_t>(self.world());
      for (std::uint32_t i = 0; i < kCount; ++i) {
        require(values[i] == (i + round) * (world * (world + 1) / 2),
                std::string(kind.name) + ": element " + std::to_string(i));
      }
    }
    self.meet();
  }
  self.step("leave");
}
const RankProgram kKinds("kinds", run_kinds);
TEST(CaseC19, EveryKindOfPointerIsRightOrNamed) {
  GroupOptions options;
  options.world = side_by_side_world();
  options.devices = gpu_count();
  run_group("kinds", options);
}

}  // namespace
}  // namespace ringbell::test

int main(int argc, char** argv) { return ringbell::test::gpu_test_main(argc, argv); }
