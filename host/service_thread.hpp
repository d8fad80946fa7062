// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One thread per process that looks after every communicator when no caller does: launches what is due, beats the
// heart, watches the peers and the device. Started with the first communicator, ended with the last.
#ifndef RINGBELL_HOST_SERVICE_THREAD_HPP_
#define RINGBELL_HOST_SERVICE_THREAD_HPP_

namespace ringbell::host {

inline constexpr unsigned kBusyTickUs = 1000;
inline constexpr unsigned kIdleTickUs = 25000;

/// What the thread looks after.
class Serviced {
 public:
  virtual ~Serviced() = default;
  /// Called on the service thread, never after remove_serviced returned. Must not block.
  /// @return true while something is outstanding: the next tick comes after 1 ms instead of 25
  virtual bool tick() noexcept = 0;
};

/// @throws std::system_error when no thread can be had
void add_serviced(Serviced* serviced);
/// Blocks while a tick of it runs. Not for a child of fork.
void remove_serviced(Serviced* serviced) noexcept;

/// Forks of this process so far, seen from the child: a communicator made before is dead there.
unsigned fork_generation() noexcept;

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SERVICE_THREAD_HPP_
