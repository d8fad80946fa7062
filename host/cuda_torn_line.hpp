// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the torn-line test between this rank and all its peers, and says what follows for LL128. The kernel and the
// bytes are device/cuda/torn_line.hpp.
#ifndef RINGBELL_HOST_CUDA_TORN_LINE_HPP_
#define RINGBELL_HOST_CUDA_TORN_LINE_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "host/segment.hpp"

struct CUstream_st;  // *: cudaStream_t, without the toolkit's headers

namespace ringbell::host {

struct LinkVerdict {
  bool lines_whole = true;  ///< every line of 128 bytes that came from a peer was whole, and enough of them came
  std::string reason;       ///< why not
};

/// Bytes that a window must have behind those of its layout; `layout_bytes` rounded up is where they begin.
std::uint64_t torn_line_bytes(std::uint64_t layout_bytes) noexcept;

/// All ranks call it between kWritten and kOpened; it waits for each of them, at most 10 s, and then takes some
/// milliseconds. The current device is the rank's own, nothing else is on `stream`.
/// @param window every rank's window as mapped here
/// @param layout_bytes the same on every rank
/// @throws Error kSystem: CUDA's words, or words of 8 bytes came changed: the mapping itself cannot be trusted
LinkVerdict test_links(const Segment& segment, CUstream_st* stream, std::byte* const* window,
                       std::uint64_t layout_bytes);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CUDA_TORN_LINE_HPP_
