// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "host/cuda_call.hpp"
#include "host/cuda_device.hpp"
#include "host/executor.hpp"

namespace ringbell::host {
namespace {

constexpr int kMaxDevices = 64;

using PointerGetAttribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);

PointerGetAttribute pointer_get_attribute() noexcept {
  static const auto function = reinterpret_cast<PointerGetAttribute>(driver_function("cuPointerGetAttribute"));
  return function;
}

int attribute(cudaDeviceAttr which, int device) noexcept {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

bool variable_is(const char* name, const char* value) noexcept {
  const char* text = std::getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}

// Nsight Compute replays kernels one at a time; a kernel that waits for a peer's never ends there.
bool profiler_serialises() noexcept {
  return std::getenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR") != nullptr ||
         std::getenv("NV_NSIGHT_COMPUTE_ACTIVE") != nullptr ||
         (std::getenv("CUDA_INJECTION64_PATH") != nullptr &&
          std::strstr(std::getenv("CUDA_INJECTION64_PATH"), "ncu") != nullptr);
}

}  // namespace

int cuda_device_count(std::string* why) noexcept {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  try {
    if (why != nullptr) {
      *why = error == cudaSuccess ? "no CUDA device is visible"
                                  : "no CUDA device can be used: " + cuda_text("cudaGetDeviceCount", error);
    }
  } catch (...) {
    // No memory for the text; the count is the answer.
  }
  return 0;
}

std::string residency_refusal(int device) {
  if (variable_is("CUDA_LAUNCH_BLOCKING", "1")) {
    return "CUDA_LAUNCH_BLOCKING=1 makes every launch wait for its kernel's end, and a resident kernel does not end; "
           "unset it";
  }
  if (profiler_serialises()) {
    return "a profiler that runs one kernel at a time is attached; use one that only traces (nsys)";
  }
  if (attribute(cudaDevAttrKernelExecTimeout, device) != 0) {
    return fmt::format("device {} drives a display and ends long kernels (kernel run-time limit); use another GPU",
                       device);
  }
  if (attribute(cudaDevAttrCooperativeLaunch, device) == 0) {
    return fmt::format("device {} has no cooperative launch; use a newer GPU", device);
  }
  return {};
}

std::string device_refusal(int device) {
  const int capability =
      attribute(cudaDevAttrComputeCapabilityMajor, device) * 10 + attribute(cudaDevAttrComputeCapabilityMinor, device);
  if (capability < 75) return fmt::format("device {} is sm_{}; ringbell needs sm_75 or newer", device, capability);
  return {};
}

void describe_device(int device, RankCard& card) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  static_assert(sizeof card.gpu_uuid == sizeof properties.uuid);
  card.device_kind = DeviceKind::kCuda;
  card.device_ordinal = static_cast<std::uint32_t>(device);
  std::memcpy(card.gpu_uuid, &properties.uuid, sizeof card.gpu_uuid);
  cuda_check(cudaDeviceGetPCIBusId(card.pci_id, sizeof card.pci_id, device), "cudaDeviceGetPCIBusId");
}

std::string ask_range(int device, const void* pointer, std::uint64_t bytes, KnownRange* range) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
  if (error != cudaSuccess)
    return fmt::format("{} is no valid pointer ({})", pointer, cuda_text("cudaPointerGetAttributes", error));
  if (attributes.type == cudaMemoryTypeUnregistered) {
    return fmt::format(
        "{} is host memory that the GPU cannot read; give device memory (cudaMalloc), or use the CPU executor",
        pointer);
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device) {
    return fmt::format("{} lies on device {}, this rank runs on device {}; give memory of the rank's own device",
                       pointer, attributes.device, device);
  }
  if (attributes.type == cudaMemoryTypeManaged && attribute(cudaDevAttrConcurrentManagedAccess, device) == 0) {
    return fmt::format(
        "{} is managed memory, which the host of device {} may not touch while a kernel stays there; give device "
        "memory "
        "(cudaMalloc)",
        pointer, device);
  }
  const PointerGetAttribute get = pointer_get_attribute();
  if (get == nullptr) return "the driver has no cuPointerGetAttribute; update it";
  // Virtual memory mapped in pieces may hold one range together. Plain allocations (the ones legacy IPC can export)
  // that only happen to be neighbours may not: the caller's buffer ends where its own allocation does.
  unsigned plain_allocation = 1;
  (void)get(&plain_allocation, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, reinterpret_cast<CUdeviceptr>(pointer));
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  std::uintptr_t known_begin = begin;
  std::uintptr_t known_end = begin;
  while (known_end - begin < bytes) {
    CUdeviceptr start = 0;
    std::size_t size = 0;
    if ((known_end != begin && plain_allocation != 0) ||
        get(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, known_end) != CUDA_SUCCESS ||
        get(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, known_end) != CUDA_SUCCESS || start + size <= known_end) {
      return fmt::format(
          "{} bytes at {} leave their allocation, which ends {} bytes after the pointer; check count and dtype", bytes,
          pointer, known_end - begin);
    }
    if (known_end == begin) known_begin = static_cast<std::uintptr_t>(start);
    known_end = static_cast<std::uintptr_t>(start + size);
  }
  *range = {known_begin, known_end, attributes.type == cudaMemoryTypeDevice};
  return {};
}

bool keeps_lines_whole(int device, const RankCard& own, const RankCard& peer) noexcept {
  if (std::memcmp(own.gpu_uuid, peer.gpu_uuid, sizeof own.gpu_uuid) == 0) return true;
  int ordinal = -1;
  if (cudaDeviceGetByPCIBusId(&ordinal, peer.pci_id) != cudaSuccess) return false;
  int native_atomics = 0;
  return cudaDeviceGetP2PAttribute(&native_atomics, cudaDevP2PAttrNativeAtomicSupported, device, ordinal) ==
             cudaSuccess &&
         native_atomics != 0;
}

bool under_mps(int device) noexcept { return attribute(cudaDevAttrMpsEnabled, device) != 0; }

int resident_ctas(int device, int change) noexcept {
  static std::atomic<int> sums[kMaxDevices];
  return sums[device % kMaxDevices].fetch_add(change) + change;
}

}  // namespace ringbell::host
