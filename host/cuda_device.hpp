// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a CUDA device and of its driver: may a kernel stay on it, who is it, what is at an address, how far
// is a peer. Ordinals mean something in this process only; between processes a GPU is its UUID and PCI id.
#ifndef RINGBELL_HOST_CUDA_DEVICE_HPP_
#define RINGBELL_HOST_CUDA_DEVICE_HPP_

#include <cstdint>
#include <string>

#include "host/cuda_pointer_cache.hpp"
#include "host/segment_layout.hpp"

namespace ringbell::host {

/// Empty when `device` can run ringbell's kernels at all; else the reason and the remedy.
std::string device_refusal(int device);

/// Empty when a resident kernel may run on `device` in this process's environment; else the reason and the remedy.
std::string residency_refusal(int device);

/// Fills the card's device fields.
/// @throws Error kSystem
void describe_device(int device, RankCard& card);

/// Asks the driver about all of [pointer, pointer + bytes).
/// @return empty and `range` filled (the widest run of allocations that holds it); else what is wrong and the remedy
std::string ask_range(int device, const void* pointer, std::uint64_t bytes, KnownRange* range);

/// Does the link between this device and a peer's keep 128-byte stores whole: the same GPU, or NVLink? The runtime has
/// no word for NVLink; native atomics between two GPUs are its sign. A peer that this process cannot see: no.
bool keeps_lines_whole(int device, const RankCard& own, const RankCard& peer) noexcept;

/// This process runs under MPS: its kernels and other processes' share the GPU at the same time.
bool under_mps(int device) noexcept;

/// CTAs that stay resident on `device` in this process, over all communicators: a count to add to and take from.
/// @return the sum after the change
int resident_ctas(int device, int change) noexcept;

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_CUDA_DEVICE_HPP_
