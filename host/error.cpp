// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/error.hpp"

#include <system_error>

#include <fmt/format.h>

namespace ringbell::host {

void throw_error(Status status, std::string_view what, std::string_view remedy) {
  std::string text(what);
  if (!remedy.empty()) {
    text += "; ";
    text += remedy;
  }
  throw Error(status, text);
}

void throw_errno(std::string_view call, std::string_view subject, std::string_view remedy, int error) {
  throw_error(Status::kSystem, fmt::format("{} {}: {}", call, subject, errno_text(error)), remedy);
}

std::string errno_text(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error), error);
}

std::string bytes_text(unsigned long long bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double scaled = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; scaled >= 1024 && unit < 3; ++unit) scaled /= 1024;
  return fmt::format("{} bytes ({:.1f} {})", bytes, scaled, kUnits[unit]);
}

}  // namespace ringbell::host
