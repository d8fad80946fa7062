// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell: AllReduce without a kernel launch. Each rank keeps one worker (a cooperative kernel on its GPU, or a CPU
// thread) that polls a queue in host memory; a call is a 64-byte command stored there. This is the whole public API.
//
//   ringbell::Communicator comm = ringbell::Communicator::from_env();
//   ringbell::Ticket ticket = comm.all_reduce(in, out, count, ringbell::DType::kFloat32, ringbell::ReduceOp::kSum);
//   if (comm.wait(ticket) != ringbell::Status::kOk) std::fputs(comm.last_error().c_str(), stderr);
#ifndef RINGBELL_HPP_
#define RINGBELL_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#if defined(__has_include) && __has_include("device/ringbell_types.hpp")
#include "device/ringbell_error.hpp"
#include "device/ringbell_types.hpp"
#include "device/ringbell_unique_id.hpp"
#include "host/ringbell_host_stream.hpp"
#else
#include "ringbell_error.hpp"
#include "ringbell_host_stream.hpp"
#include "ringbell_types.hpp"
#include "ringbell_unique_id.hpp"
#endif

#ifndef RINGBELL_API
#define RINGBELL_API __attribute__((visibility("default")))
#endif

namespace ringbell {

/// Where the worker runs and where `in` and `out` live.
enum class DeviceKind : std::uint8_t { kAuto = 0, kCpu = 1, kCuda = 2 };

/// When a pointer range is asked of the driver (CUDA). kFirst: once per range, then remembered until forget().
enum class CheckPointers : std::uint8_t { kFirst = 0, kAlways = 1, kOff = 2 };

/// Settings of a communicator. A field left at its default may be set by the RINGBELL_* variable named beside it
/// (`ringbell env` lists them); a field set by the caller wins. Ranks must agree on everything but device_ordinal,
/// init_timeout_s and check_pointers.
struct Config {
  DeviceKind device = DeviceKind::kAuto;   ///< RINGBELL_DEVICE; kAuto: CUDA if there is a GPU, else CPU
  int device_ordinal = -1;                 ///< CUDA device; -1: local rank modulo visible devices
  bool allow_shared_device = false;        ///< RINGBELL_ALLOW_SHARED_DEVICE; two ranks on one GPU
  std::uint32_t queue_depth = 0;           ///< RINGBELL_QUEUE_DEPTH; calls in flight, power of two; 0: 64
  std::uint32_t slot_bytes = 0;            ///< RINGBELL_SLOT_BYTES; payload of a slot, multiple of 1920; 0: 61440
  double timeout_s = -1;                   ///< RINGBELL_TIMEOUT_S; of a wait inside a call; 0: for ever; -1: 30
  double init_timeout_s = -1;              ///< RINGBELL_INIT_TIMEOUT_S; of set-up; 0: for ever; -1: 120
  std::int64_t idle_park_us = -1;          ///< RINGBELL_IDLE_PARK_US; worker leaves after this idle time; -1: 100
  std::int64_t lease_us = -1;              ///< RINGBELL_LEASE_US; longest residency in one go; -1: 10000
  Algorithm algorithm = Algorithm::kAuto;  ///< RINGBELL_ALGO
  Protocol protocol = Protocol::kAuto;     ///< RINGBELL_PROTO
  CheckPointers check_pointers = CheckPointers::kFirst;  ///< RINGBELL_CHECK_POINTERS
  std::uint64_t first_epoch = 0;                         ///< for tests of counter wraps: slot uses counted from here
};

/// What a call needs beyond its arguments.
struct CallOptions {
  Algorithm algorithm = Algorithm::kAuto;  ///< kAuto: the communicator's setting, else the plan's choice
  Protocol protocol = Protocol::kAuto;
  std::uint64_t tag = 0;       ///< compared between ranks: tells swapped calls of equal shape apart
  bool last_of_burst = false;  ///< the worker leaves the GPU right after this call
  /// Host-issued calls: the call runs when everything that is on this stream now has run. Nothing of it waits on the
  /// GPU before that, and it holds up no park; calls behind it in the queue wait for it. Its time-out starts when it is
  /// ready; a peer that is ready counts its own. On CUDA also std::optional<Stream>(nullptr), the legacy stream.
  std::optional<Stream> after = std::nullopt;
};

/// One call of all_reduce_many.
struct AllReduceCall {
  const void* in;
  void* out;
  std::uint64_t count;  ///< elements
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  CallOptions options = {};
};

/// Names one queued call. A small value; good until `queue_depth` newer calls have completed, then wait says kStale.
struct [[nodiscard]] Ticket {
  std::uint64_t seq = 0;             ///< position in the communicator's order
  Status status = Status::kAborted;  ///< kOk: queued. Otherwise nothing was queued, and test and wait answer this.
};

/// Which way a call went.
struct Path {
  Algorithm algorithm = Algorithm::kAuto;
  Protocol protocol = Protocol::kAuto;
  std::uint32_t channels = 0;
  std::uint32_t chunk_bytes = 0;
};

/// Why a worker left, counted.
struct ParkCounts {
  std::uint64_t idle = 0;
  std::uint64_t lease = 0;       ///< this rank's lease was over
  std::uint64_t peer_lease = 0;  ///< another rank's was
  std::uint64_t request = 0;     ///< park()
  std::uint64_t burst_end = 0;   ///< last_of_burst
};

/// Counters since creation. Calls and bytes count completed calls.
struct Stats {
  std::uint64_t calls = 0;
  std::uint64_t launches = 0;  ///< kernel launches (CUDA) or thread wake-ups (CPU) of the worker
  ParkCounts parks;
  std::array<std::uint64_t, kProtocolCount> sent_bytes{};  ///< payload this rank published, by Protocol
  std::uint64_t wait_ns = 0;                               ///< host time inside wait
  Path last_path;                                          ///< of the call submitted last
  std::uint64_t stream_calls = 0;  ///< put on streams by all_reduce_on; a captured one counts once
};

enum class LogLevel : std::uint8_t { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };
/// Replaces the log's output for the whole process; an empty function restores it. Called from any thread; it
/// must not call a communicator.
RINGBELL_API void set_log_handler(std::function<void(LogLevel, int rank, std::string_view text)> handler);

/// 128 bytes to hand to all ranks by any means. Thread-safe. Does not block.
/// @throws Error kSystem: no randomness
RINGBELL_API UniqueId unique_id_create();

RINGBELL_API const char* status_name(Status status) noexcept;
RINGBELL_API const char* dtype_name(DType dtype) noexcept;
RINGBELL_API const char* reduce_op_name(ReduceOp op) noexcept;
RINGBELL_API const char* algorithm_name(Algorithm algorithm) noexcept;
RINGBELL_API const char* protocol_name(Protocol protocol) noexcept;

/// One rank's membership in a group of 1 to 8 ranks on one machine: processes, or threads of one process.
/// Every function but the destructor and the moves may be called from any thread. Calls of one communicator form one
/// order, the order of submission, which must be the same on every rank.
class RINGBELL_API Communicator {
 public:
  /// Joins the group. Blocks until all ranks have joined, at most config.init_timeout_s.
  /// @param id    the same on every rank (unique_id_create on one of them)
  /// @param rank  0 .. world - 1, each once
  /// @param world 1 .. 8
  /// @throws Error kInvalidArgument naming value and remedy; kTimeout naming absent ranks; kUnsupported with the reason
  ///   (no CUDA, residency refused, GPU shared without leave); kSystem with the system's words. Nothing is left behind.
  Communicator(const UniqueId& id, int rank, int world, const Config& config = {});

  /// Joins the group that a launcher's variables describe: `ringbell run`, torchrun, mpirun, srun; first complete set
  /// wins.
  /// @throws Error as above, and kInvalidArgument for a partial or contradicting set
  static Communicator from_env(const Config& config = {});

  /// A communicator that was moved from may only be destroyed or assigned; no other function may be called on it.
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Leaves the group: calls that are queued or on a stream get a second, then they end; bounded wait for the peers to
  /// let go of this rank's window.
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world() const noexcept;
  [[nodiscard]] DeviceKind device() const noexcept;

  /// Queues out = reduction of all ranks' `in` and returns at once.
  /// @param in, out  `count` elements each, any alignment; equal (in place) or not overlapping. CUDA: memory of the
  ///   rank's own GPU; pinned host memory and managed memory are taken, too, and cost what runtime/README.md says.
  ///   Both are the worker's until the call completes. May be null when count is 0.
  /// @param count    elements, the same on every rank; 0 completes without touching memory
  /// @return Ticket.status kOk; kAgain: the queue is full; kInvalidArgument: null, overlapping, foreign or too short
  ///   ranges, unknown type or operation; or what broke the communicator. Text in last_error(). Never blocks.
  Ticket all_reduce(const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op = ReduceOp::kSum,
                    const CallOptions& options = {}) noexcept;

  /// Queues all calls in order with one look at the worker, or none of them. tickets.size() >= calls.size().
  /// @return kOk; kAgain: the queue has no room for all; kInvalidArgument: the first bad call, named in last_error()
  [[nodiscard]] Status all_reduce_many(std::span<const AllReduceCall> calls, std::span<Ticket> tickets) noexcept;

  /// Puts the call on `stream`: an ordinary kernel launch there, or, on a stream under capture, a node of its graph,
  /// which may be replayed as often as wanted. `in` is read and `out` written in the stream's order. Calls of one
  /// communicator run one after the other in the order in which they were made, on whatever streams (inside one capture
  /// likewise); they mix with host-issued calls, which have an order of their own. Every rank makes, and replays, the
  /// same stream calls in the same order. What runs in another order than it was made is the caller's to chain: graphs
  /// of one communicator one after the other, and not beside calls of it on other streams.
  /// A call that fails fills `out` with ones (NaN in every float type), and check() tells; the ones after it do so,
  /// too, and replays after the communicator has gone: they look at `in` and `out` and nothing else. On the CPU
  /// executor `stream` is a HostStream*.
  /// @return kOk: it is on the stream; kInvalidArgument: as all_reduce, a stream of another device, or
  ///   CallOptions::after; or what broke the communicator. Text in last_error(). Does not wait for the stream.
  [[nodiscard]] Status all_reduce_on(Stream stream, const void* in, void* out, std::uint64_t count, DType dtype,
                                     ReduceOp op = ReduceOp::kSum, const CallOptions& options = {}) noexcept;

  /// Waits until everything that is on `stream` now has run, then tells whether a launched call of this communicator
  /// has failed, on any stream. @param deadline_s as for wait
  /// @return kOk; kAgain at the deadline; kInvalidArgument: a stream under capture; or the error, which stays
  [[nodiscard]] Status check(Stream stream, double deadline_s = -1) noexcept;

  /// @return kOk: complete; kPending; kStale; or the error of the call
  [[nodiscard]] Status test(const Ticket& ticket) noexcept;
  /// Blocks until the call completes: spins, then yields, then sleeps.
  /// @param deadline_s seconds; kAgain when they pass, nothing is broken then and last_error() stays. Negative: no
  ///   deadline of its own, the operation time-out still ends it.
  /// @return as test, without kPending. kAgain, too, when this rank itself has kept its worker parked for the operation
  ///   time-out (ParkedScope): last_error() says so, nothing is broken, and after unpark() the ticket can be waited for
  ///   again. kInvalidArgument: a ticket of another communicator.
  [[nodiscard]] Status wait(const Ticket& ticket, double deadline_s = -1) noexcept;
  /// Waits for each; @return the first status that is not kOk.
  [[nodiscard]] Status wait_all(std::span<const Ticket> tickets, double deadline_s = -1) noexcept;

  /// From hold() to release() the worker stays: no lease, no idle park. Counted. On CUDA, calls that drain the device
  /// (cudaDeviceSynchronize, cudaFree, first launch of a lazily loaded kernel) block until release().
  [[nodiscard]] Status hold() noexcept;
  [[nodiscard]] Status release() noexcept;
  /// Waits for the calls submitted so far, then makes the worker leave; returns when it has. The next call brings it
  /// back. While a scope keeps the worker away, calls queued behind it are not waited for. @param deadline_s as for
  /// wait
  [[nodiscard]] Status park(double deadline_s = -1) noexcept;
  /// From here to unpark() the worker stays away; calls are queued and run then. Counted. See ParkedScope. Only an
  /// abort brings it back before: once, for as long as it takes to tell the other ranks (microseconds), and to run no
  /// call.
  [[nodiscard]] Status park_and_stay(double deadline_s = -1) noexcept;
  void unpark() noexcept;

  /// Runs an empty command through queue and worker: the floor of every call. For measurements; no peer takes part.
  Ticket nop() noexcept;

  /// Breaks the communicator on this rank and, through its worker, on the others. Waiting calls end with kAborted.
  void abort() noexcept;
  /// Drops what is remembered about the allocation around `pointer` (CUDA: call before freeing memory that was used
  /// here and whose address may come back as something smaller).
  void forget(const void* pointer) noexcept;

  [[nodiscard]] Stats stats() const noexcept;
  /// The text of the last error on this communicator: rank, call, step, what was awaited and what was seen.
  [[nodiscard]] std::string last_error() const;
  /// One line: version, rank, device, protocols permitted, residency, lease, session.
  [[nodiscard]] std::string describe() const;

 private:
  class Impl;
  explicit Communicator(std::nullptr_t) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Keeps the worker away while it lives: graph capture, a known draining call.
class RINGBELL_API ParkedScope {
 public:
  explicit ParkedScope(Communicator& comm) : comm_(comm), status_(comm.park_and_stay()) {}
  ~ParkedScope() {
    if (status_ == Status::kOk) comm_.unpark();
  }
  ParkedScope(const ParkedScope&) = delete;
  ParkedScope& operator=(const ParkedScope&) = delete;
  /// kOk, or why the worker could not be parked.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Communicator& comm_;
  Status status_;
};

}  // namespace ringbell

#endif  // RINGBELL_HPP_
