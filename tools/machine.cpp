// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/machine.hpp"

#include <fstream>

#include <sched.h>
#include <sys/utsname.h>

namespace ringbell::tools {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string architecture = "unknown";
  utsname names{};
  if (uname(&names) == 0) architecture = names.machine;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && line.compare(0, 10, "model name") == 0) return line.substr(colon + 2);
  }
  return architecture;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ...": the first word that looks like a version.
std::string kernel_module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace

Machine describe_machine(bool with_cuda) {
  Machine machine;
  machine.cpu = cpu_model();
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) machine.cores = CPU_COUNT(&cores);
  utsname names{};
  if (uname(&names) == 0) machine.kernel = std::string(names.sysname) + " " + names.release;
  if (with_cuda) {
    machine.cuda = describe_cuda();
    machine.driver = kernel_module_version();
  }
  return machine;
}

}  // namespace ringbell::tools
