// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Helpers that build and throw ringbell::Error. The class itself is device/ringbell_error.hpp, public.
#ifndef RINGBELL_HOST_ERROR_HPP_
#define RINGBELL_HOST_ERROR_HPP_

#include <cerrno>
#include <string>
#include <string_view>

#include "device/ringbell_error.hpp"

namespace ringbell::host {

/// Throws Error(status, "what" or "what; remedy").
[[noreturn]] void throw_error(Status status, std::string_view what, std::string_view remedy = {});

/// Throws Error(kSystem, "shm_open /ringbell-0-..: Permission denied (errno 13); remedy").
/// @param error the errno to report; taken before anything else can change it
[[noreturn]] void throw_errno(std::string_view call, std::string_view subject, std::string_view remedy = {},
                              int error = errno);

/// @return "Permission denied (errno 13)", thread-safe.
std::string errno_text(int error);

/// @return "524288 bytes (512.0 KiB)"; "." decimals in any locale.
std::string bytes_text(unsigned long long bytes);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_ERROR_HPP_
