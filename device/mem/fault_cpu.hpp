// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a CPU worker finds its fault plan: the thread that is the worker says which, before it runs one.
#ifndef RINGBELL_DEVICE_MEM_FAULT_CPU_HPP_
#define RINGBELL_DEVICE_MEM_FAULT_CPU_HPP_

#if defined(__CUDACC__)
#error "fault_cpu.hpp belongs in a .cpp: the CPU form is not instantiated by nvcc"
#endif

#include "device/mem/ops_cpu.hpp"
#include "device/mem/ops_fault.hpp"

namespace ringbell::device {

struct CpuFaultHook {
  /// Of the calling thread. It outlives every run_worker<CpuFaultOps> of that thread.
  static inline thread_local FaultPlan* of_thread = nullptr;

  static FaultPlan* plan() { return of_thread; }
  static std::uint64_t count_publish(FaultPlan& plan) { return ++plan.published; }  // one lane
};

using CpuFaultOps = FaultOps<CpuOps, CpuFaultHook>;
static_assert(MemOps<CpuFaultOps>);

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_FAULT_CPU_HPP_
