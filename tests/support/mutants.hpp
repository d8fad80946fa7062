// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What the explorer may break. Orders are weakened by edge when the model runs; deleted instructions are the Mutant
// hooks of device/mem/edges.hpp, planted by the type of the memory operations (ops_sched.hpp).
#ifndef RINGBELL_TESTS_SUPPORT_MUTANTS_HPP_
#define RINGBELL_TESTS_SUPPORT_MUTANTS_HPP_

#include "device/mem/edges.hpp"

namespace ringbell::test {

/// The end of an edge that is weakened.
enum class Side {
  kNone,
  kRelease,  // the store becomes relaxed
  kAcquire,  // the load becomes relaxed
  kHost,     // the fence of host threads is gone
  kWorker,   // the fence of workers is gone
  kBarrier,  // the lanes do not wait for each other
  kStream,   // the store that a stream makes for the host becomes relaxed
};

struct Weakening {
  device::Edge edge = device::Edge::kStart;
  Side side = Side::kNone;

  [[nodiscard]] bool hits(device::Edge other, Side at) const { return side == at && edge == other; }
};

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_MUTANTS_HPP_
