// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The program's exit codes (scripts rely on them) and the exceptions that carry one. A signal n gives 128 + n.
#ifndef RINGBELL_TOOLS_EXIT_CODES_HPP_
#define RINGBELL_TOOLS_EXIT_CODES_HPP_

#include <stdexcept>
#include <string>

#include "runtime/ringbell.hpp"

namespace ringbell::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitWrong = 1;        ///< wrong data or degraded
inline constexpr int kExitBroken = 2;       ///< the communicator broke
inline constexpr int kExitEnvironment = 3;  ///< something here does not let it run: no GPU, /dev/shm full, no such file
inline constexpr int kExitLost = 4;         ///< time-out or lost rank
inline constexpr int kExitUsage = 64;
inline constexpr int kExitSignal = 128;

/// Ends the program with `code` after printing what(); an empty text ends it quietly.
class ExitError : public std::runtime_error {
 public:
  ExitError(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// A bad command line: names the value and what is allowed.
class UsageError : public ExitError {
 public:
  explicit UsageError(const std::string& text) : ExitError(kExitUsage, text) {}
};

/// Of an Error thrown by set-up, where nothing is broken yet.
inline int exit_code_of_setup(Status status) noexcept {
  switch (status) {
    case Status::kInvalidArgument: return kExitUsage;
    case Status::kTimeout:
    case Status::kPeerLost: return kExitLost;
    case Status::kUnsupported:
    case Status::kSystem: return kExitEnvironment;
    default: return kExitBroken;
  }
}

/// Of a call's status.
inline int exit_code_of_call(Status status) noexcept {
  switch (status) {
    case Status::kOk: return kExitOk;
    case Status::kTimeout:
    case Status::kPeerLost: return kExitLost;
    default: return kExitBroken;
  }
}

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_EXIT_CODES_HPP_
