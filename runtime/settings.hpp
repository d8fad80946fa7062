// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A Config completed from the environment and checked: every field decided, units as the worker wants them.
#ifndef RINGBELL_RUNTIME_SETTINGS_HPP_
#define RINGBELL_RUNTIME_SETTINGS_HPP_

#include <cstdint>
#include <string>

#include "host/env.hpp"
#include "runtime/ringbell.hpp"

namespace ringbell {

struct Settings {
  DeviceKind device = DeviceKind::kCpu;  ///< never kAuto
  std::string device_note;               ///< why kAuto became a CPU; empty when it was asked for
  int device_ordinal = 0;
  bool allow_shared_device = false;
  bool resident = true;
  std::uint32_t queue_depth = 64;
  std::uint32_t slot_bytes = 0;
  std::uint64_t timeout_ns = 0;  ///< 0: for ever; time scale applied
  double init_timeout_s = 0;     ///< 0: for ever
  std::uint64_t idle_park_ns = 0;
  std::uint64_t lease_ns = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Protocol protocol = Protocol::kAuto;
  CheckPointers check_pointers = CheckPointers::kFirst;
  std::uint64_t first_epoch = 0;
  std::string fault;
};

/// @param local_rank picks the CUDA device when the config does not
/// @throws Error kInvalidArgument naming field or variable, value and what is allowed; kUnsupported: CUDA asked for and
///   not there, with the reason
Settings resolve_settings(const Config& config, const host::Env& env, int local_rank);

}  // namespace ringbell

#endif  // RINGBELL_RUNTIME_SETTINGS_HPP_
