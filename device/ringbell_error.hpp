// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The one exception that set-up throws. Installed flat beside ringbell.hpp, which includes it. Never thrown by the data
// path (submit, test, wait), which answers a Status.
#ifndef RINGBELL_ERROR_HPP_
#define RINGBELL_ERROR_HPP_

#include <stdexcept>
#include <string>

#if defined(__has_include) && __has_include("device/ringbell_types.hpp")
#include "device/ringbell_types.hpp"
#else
#include "ringbell_types.hpp"
#endif

namespace ringbell {

/// Set-up failed. what() names the offending value and the remedy; status() says what kind of failure it is.
/// Default visibility: thrown inside the shared library, caught outside.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

}  // namespace ringbell

#endif  // RINGBELL_ERROR_HPP_
