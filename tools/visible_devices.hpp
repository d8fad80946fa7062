// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// How many GPUs the ranks would see, asked without becoming a CUDA process: the driver starts threads, and a launcher
// must stay the only thread of its process.
#ifndef RINGBELL_TOOLS_VISIBLE_DEVICES_HPP_
#define RINGBELL_TOOLS_VISIBLE_DEVICES_HPP_

#include <string>

namespace ringbell::tools {

/// Asks in a child process. Blocks while the driver starts, a second at most on common machines.
/// @param why may be null; gets the reason when the answer is 0
int visible_devices(std::string* why = nullptr);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_VISIBLE_DEVICES_HPP_
