// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// perf's progress bar: on a terminal only, and erased before a line of the table is printed, which may be on the same
// one.
#ifndef RINGBELL_TOOLS_PERF_PROGRESS_HPP_
#define RINGBELL_TOOLS_PERF_PROGRESS_HPP_

#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/output.hpp"

namespace ringbell::tools {

class Progress {
 public:
  /// @param total turns
  explicit Progress(std::size_t total) : show_(isatty(STDERR_FILENO) == 1), total_(total) {}
  /// Another turn begins. @param what is measured
  void turn(const std::string& what) {
    constexpr std::size_t kWidth = 30;
    const std::size_t filled = done_ * kWidth / total_;
    if (show_) {
      complain(fmt::format("\r\033[K[{:=<{}}{:<{}}] {}/{} {}", "", filled, "", kWidth - filled, done_, total_, what));
    }
    if (done_ < total_) ++done_;
  }
  void erase() const {
    if (show_) complain("\r\033[K");
  }

 private:
  bool show_;
  std::size_t total_;
  std::size_t done_ = 0;
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PERF_PROGRESS_HPP_
