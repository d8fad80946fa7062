// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Every ordering between two agents has a name here; code passes it to the operation that makes the ordering, so that
// a reader finds the partner and a test can weaken exactly one. Production operations ignore the argument.
// tools/check_edges.py: each edge is used by a release side and by an acquire side.
#ifndef RINGBELL_DEVICE_MEM_EDGES_HPP_
#define RINGBELL_DEVICE_MEM_EDGES_HPP_

namespace ringbell::device {

enum class Edge {
  kCommand,     // host -> worker: a quad's payload is written before its sequence number
  kCompletion,  // worker -> host: `out` and the failure record are written before the completion word
  kTail,        // sender -> receiver: a Simple slot is filled before the tail counts it
  kCredit,      // receiver -> sender: a slot is read (or cleaned) before the credit frees it
  kLl128Flag,   // sender -> receiver: the 120 data bytes of a line before its flag
  kAbort,       // rank -> rank, host -> worker: the reason is written before the abort word
  kPark,        // worker <-> host, full fences: state then queue against queue then state
  kState,       // worker -> host: everything a parked worker saved before PARKED
  kSlotRead,    // lanes of one worker: all have read a slot before one of them frees it
  kSlotFill,    // lanes of one worker: all have filled a slot before one of them counts it
  kSlotClean,   // owner -> sender: a set is zeroed before the line that lets the sender store into it again
  kOpStart,     // lanes of one worker: the command is in shared storage before any of them reads it
  kOpEnd,       // lanes of one worker: all are done with an operation before it completes and before the next starts
  kTurn,        // launched call -> the next one: what a call keeps before the turn is free again
  kStart,       // executor -> worker: launch arguments and restored state before the worker runs
};

/// A fault that a test plants in the protocol: one instruction missing. kNone everywhere else.
enum class Mutant {
  kNone,
  kOneLlFlag,
  kNoLl128Reload,
  kCreditBeforeRead,
  kParkWithoutReread,
  kParkAsksOneQuad,
  kNextBeforeComplete,
  kTakeAnyTurn,
  kNoContest,
  kCloseTaken,
  kNoMeetBeforeShort,
  kDirectNotCleaned,
};

/// Tests specialise this for their own memory operations; it is constant, so that production code has no trace of it.
template <class M>
inline constexpr Mutant kMutantOf = Mutant::kNone;

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MEM_EDGES_HPP_
