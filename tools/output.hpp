// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Bytes to descriptors and files, with every failure seen: a full disk must not look like success.
#ifndef RINGBELL_TOOLS_OUTPUT_HPP_
#define RINGBELL_TOOLS_OUTPUT_HPP_

#include <string>
#include <string_view>

namespace ringbell::tools {

/// Writes all of `text`. @throws ExitError: quietly with 128 + SIGPIPE when the reader is gone, else kExitEnvironment
void write_all(int fd, std::string_view text);

/// To standard output, whole at once: `| head` gets whole lines.
void print(std::string_view text);

/// To standard error; failures are ignored, there is nowhere left to tell them.
void complain(std::string_view text) noexcept;

/// Replaces `path` by a file with `text`, or leaves it as it was: never half a file.
/// @throws ExitError(kExitEnvironment) naming the path
void replace_file(const std::string& path, std::string_view text);

/// Asked before a long run: can replace_file work? @throws ExitError(kExitEnvironment)
void check_replaceable(const std::string& path);

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_OUTPUT_HPP_
