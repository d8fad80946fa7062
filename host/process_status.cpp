// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/process_status.hpp"

#include <fstream>
#include <sstream>

#include <dirent.h>
#include <fmt/format.h>

#include "host/process_identity.hpp"

namespace ringbell::host {

std::optional<ProcessStatus> read_process_status(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  ProcessStatus status;
  bool known = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint32_t real_uid = 0;
    words >> name;
    if (name == "TracerPid:") words >> status.tracer;
    if (name == "Uid:") known = static_cast<bool>(words >> real_uid >> status.uid);
  }
  if (!known) return std::nullopt;
  return status;
}

bool has_thread_in_trace_stop(std::uint32_t pid) {
  const std::string folder = fmt::format("/proc/{}/task", pid);
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return false;
  bool traced = false;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(fmt::format("{}/{}/stat", folder, entry->d_name));
    std::string text;
    std::getline(file, text, '\0');
    const auto stat = parse_process_stat(text);
    traced = traced || (stat && stat->state == 't');
  }
  closedir(dir);
  return traced;
}

}  // namespace ringbell::host
