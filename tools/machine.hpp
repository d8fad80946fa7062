// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a result file says of the machine it comes from. No host name.
#ifndef RINGBELL_TOOLS_MACHINE_HPP_
#define RINGBELL_TOOLS_MACHINE_HPP_

#include <string>
#include <vector>

namespace ringbell::tools {

struct CudaMachine {
  std::vector<std::string> gpus;  ///< names of the visible devices
  std::string driver_supports;    ///< CUDA version, "13.0"
  std::string runtime;            ///< "13.0"
};

struct Machine {
  std::string cpu;
  int cores = 0;  ///< this process may use
  std::string kernel;
  CudaMachine cuda;    ///< empty texts without CUDA
  std::string driver;  ///< version of the NVIDIA kernel module
};

/// Asks CUDA only if `with_cuda`. Unknown parts are empty.
Machine describe_machine(bool with_cuda);

/// By the CUDA runtime; all empty in a build without.
CudaMachine describe_cuda();

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_MACHINE_HPP_
