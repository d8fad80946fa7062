// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a communicator needs from the thing that runs its worker: windows, launches, and an end. Two kinds: a CPU thread
// (cpu_executor.cpp) and a cooperative kernel (cuda_executor.cpp; cuda_executor_stub.cpp where CUDA is absent). Policy,
// queue and states are not here.
#ifndef RINGBELL_HOST_EXECUTOR_HPP_
#define RINGBELL_HOST_EXECUTOR_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/ringbell_types.hpp"
#include "device/worker/context.hpp"
#include "device/worker/launched_call.hpp"
#include "host/clock.hpp"
#include "host/segment.hpp"

namespace ringbell::host {

/// A word of the window that create_window sets after zeroing.
struct InitialWord {
  std::uint64_t offset;
  std::uint64_t value;
};

/// What a stream is wanted for.
enum class StreamUse : std::uint8_t {
  kLaunch,  ///< to put a launched call on it; may be under capture
  kAfter,   ///< to let a host-issued call wait for it
  kCheck,   ///< to wait for what is on it
};

struct ExecutorConfig {
  int rank = 0;
  int world = 1;
  int device_ordinal = 0;  ///< already resolved; ignored on CPU
  bool allow_shared_device = false;
  bool resident = true;         ///< RINGBELL_RESIDENT; false: the worker leaves after every call
  bool ask_every_time = false;  ///< RINGBELL_CHECK_POINTERS=always
  std::uint64_t window_bytes = 0;
  std::vector<InitialWord> initial_words;  ///< counters in the own window that do not start at 0
  std::string fault;                       ///< RINGBELL_FAULT, unparsed; empty: none
};

/// What is known of a user range.
struct PointerInfo {
  bool plain_device = false;   ///< memory of the worker's own GPU: a gpu-scope fence completes it
  const void* base = nullptr;  ///< allocation that holds it
  std::uint64_t base_bytes = 0;
};

/// Set-up calls happen in the order below, on one thread, and throw ringbell::Error; the rest is noexcept.
class Executor {
 public:
  virtual ~Executor() = default;

  // --- set-up
  /// Fills the device part of this rank's card (kind, GPU UUID, PCI id, capabilities) and this rank's window: made,
  /// zeroed AND synchronised, exported in the card. CPU: the window in the segment. @return the window, as mapped here.
  /// @throws kSystem with the driver's words
  virtual std::byte* create_window(Segment& segment) = 0;
  /// After all ranks are kWritten: checks the cards together (same kind, shared GPU) and maps every peer's window.
  /// @param window [world] entries are set, own one included
  virtual void open_peers(Segment& segment, std::byte** window) = 0;
  /// Why no worker may stay here; empty if one may. Known once the executor is made.
  virtual std::string residency_refusal() const = 0;
  /// After open_peers: do LL128 lines come whole to this rank from every peer? (link kind; the torn-line test)
  virtual bool ll128_link() const noexcept = 0;
  /// Before any launch: everything that a launch needs exists afterwards (streams, loaded kernels, registered control
  /// bytes). Fills in the context's pointers as the worker sees them: control, queue, completions, persistent.
  /// @param context of the host way, complete but for those pointers; both ways' persistent state starts as `initial`
  virtual void prepare(Segment& segment, device::WorkerContext& context, const device::Persistent& initial) = 0;

  // --- data path
  /// Starts generation `generation` of the worker; the one before has said PARKED. Never waits for the worker.
  virtual Status launch(std::uint64_t generation) noexcept = 0;
  /// kOk, or kSystem when the device has failed; `error_text` then tells. Cheap enough for a 25 ms tick.
  virtual Status health() noexcept = 0;
  virtual std::string error_text() const = 0;
  /// True when no worker code runs any more (kernel ended, thread at rest). Does not block.
  virtual bool at_rest() noexcept = 0;
  /// Asks the driver about a user range; CPU: always kOk. kInvalidArgument: error_text() names pointer and remedy.
  virtual Status check_range(const void* pointer, std::uint64_t bytes, PointerInfo* info) noexcept = 0;
  /// Drops what is remembered about the allocation around `pointer`.
  virtual void forget(const void* pointer) noexcept = 0;

  // --- streams: a cudaStream_t, or a HostStream* on the CPU executor. The caller makes these calls one at a time.
  /// @return kInvalidArgument, kUnsupported: error_text() tells stream and remedy
  virtual Status check_stream(Stream stream, StreamUse use) noexcept = 0;
  /// Puts a launched call on `stream`, after the one before on whatever stream that was; captured if the stream is.
  /// @param call all but `state`, which is this executor's
  virtual Status launch_call(Stream stream, const device::LaunchedCall& call) noexcept = 0;
  /// Makes `stream`, when it gets there, store `value` in `word` of this rank's control bytes; what was in the stream
  /// before is visible to whoever sees it.
  virtual Status write_after(Stream stream, std::uint64_t* word, std::uint64_t value) noexcept = 0;
  /// Waits for what is on `stream` now. @return kAgain at the deadline; kInvalidArgument for a stream under capture
  virtual Status await_stream(Stream stream, Deadline deadline) noexcept = 0;
  /// Waits for the launched calls that are on streams, replays aside: those the host cannot see.
  virtual void await_launched(Deadline deadline) noexcept = 0;
  /// No launched call that starts from now on touches a window or control bytes, replays of captured ones included.
  /// @return false if one still runs at the deadline
  virtual bool close_launched(Deadline deadline) noexcept = 0;

  // --- teardown; the worker has exited or is given up
  /// Lets go of the peers' windows.
  virtual void close_peers() noexcept = 0;
  /// Zeroes and frees the own window, or keeps it until process exit when a peer may still use it.
  virtual void destroy_window(bool confirmed_closed) noexcept = 0;
};

std::unique_ptr<Executor> make_cpu_executor(const ExecutorConfig& config);
/// @throws Error kUnsupported: built without CUDA, no driver, no device, or a GPU too old
std::unique_ptr<Executor> make_cuda_executor(const ExecutorConfig& config);
/// Visible CUDA devices; 0 without CUDA or a driver (`why` tells). Does not create a context.
int cuda_device_count(std::string* why = nullptr) noexcept;

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_EXECUTOR_HPP_
