// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The 64-byte command and the 16-byte completion of the host queue. A command is four quads; the last 4 bytes of each
// carry its sequence flag, so that a quad is valid by itself and one poll of 64 bytes brings everything.
#ifndef RINGBELL_DEVICE_LAYOUT_COMMAND_HPP_
#define RINGBELL_DEVICE_LAYOUT_COMMAND_HPP_

#include "device/config.hpp"
#include "device/layout/ll128_line.hpp"
#include "device/layout/ll_line.hpp"
#include "device/ringbell_types.hpp"

namespace ringbell::device {

inline constexpr unsigned kCommandQuads = 4;

enum class CommandKind : std::uint8_t { kNop = 1, kAllReduce = 2 };

// Command flags.
inline constexpr std::uint8_t kFlagLastOfBurst = 1;  // park right after this call
inline constexpr std::uint8_t kFlagGpuScopeComplete =
    2;  // `out` is plain memory of this GPU: a gpu-scope fence is enough

/// What a call asks of the worker, unpacked.
struct Command {
  const void* in;
  void* out;
  std::uint64_t count;        // elements
  std::uint64_t tag;          // caller's own; compared between ranks
  std::uint32_t chunk_bytes;  // ring: bytes of one chunk, multiple of 16, at most slot_bytes; one round: spread evenly
  CommandKind kind;
  std::uint8_t flags;
  DType dtype;
  ReduceOp op;
  Algorithm algorithm;
  Protocol protocol;
  std::uint16_t channels;
};

/// memory: host queue, one slot. writer: this rank's host. reader: its worker. zero: no command.
struct alignas(64) CommandSlot {
  Quad quad[kCommandQuads];
};
static_assert(sizeof(CommandSlot) == 64);

/// memory: host queue, one line per slot. writer: worker. reader: host. zero: nothing completed.
struct alignas(16) Completion {
  std::uint64_t info;  // payload bytes this rank published for the call
  std::uint64_t word;  // (seq + 1) << 8 | Status; written last (edge kCompletion)
};
static_assert(sizeof(Completion) == sizeof(Quad));

/// Never 0, so that zeroed memory holds no command. Slot reuse rewrites all four, so an old lap cannot match.
RINGBELL_HD constexpr std::uint32_t command_flag(std::uint64_t seq) {
  return static_cast<std::uint32_t>(1 + mod_flags(seq));
}

RINGBELL_HD constexpr bool command_quad_ready(Quad quad, std::uint32_t flag) {
  return static_cast<std::uint32_t>(quad.hi >> 32) == flag;
}

RINGBELL_HD constexpr std::uint64_t completion_word(std::uint64_t seq, Status status) {
  return ((seq + 1) << 8) | static_cast<std::uint64_t>(status);
}
RINGBELL_HD constexpr std::uint64_t completion_count(std::uint64_t word) { return word >> 8; }  // seq + 1
RINGBELL_HD constexpr Status completion_status(std::uint64_t word) { return static_cast<Status>(word & 0xff); }

namespace command_detail {
RINGBELL_HD inline Quad quad(std::uint64_t lo, std::uint32_t hi, std::uint32_t flag) {
  return Quad{lo, static_cast<std::uint64_t>(flag) << 32 | hi};
}
RINGBELL_HD constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
RINGBELL_HD constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

inline constexpr std::uint32_t kMaxLines = 0xffff;

// What the worker would need many instructions for; the host has them for nothing.
RINGBELL_HD constexpr std::uint32_t element_shift(DType dtype) {
  const std::size_t bytes = dtype_bytes(dtype);
  return bytes == 8 ? 3 : bytes == 4 ? 2 : bytes == 2 ? 1 : 0;
}
RINGBELL_HD constexpr std::uint32_t chunk_lines(const Command& c) {
  const std::uint64_t bytes = c.count << element_shift(c.dtype);
  const std::uint64_t chunk = c.chunk_bytes < bytes ? c.chunk_bytes : bytes;
  const std::uint32_t line = c.protocol == Protocol::kLL      ? kLlPayloadBytes
                             : c.protocol == Protocol::kLL128 ? kLl128PayloadBytes
                                                              : kQuadBytes;
  const std::uint64_t lines = (chunk + line - 1) / line;
  return lines < kMaxLines ? static_cast<std::uint32_t>(lines) : kMaxLines;
}
}  // namespace command_detail

/// Quad i of a command: 12 bytes payload, 4 bytes flag.
RINGBELL_HD inline Quad command_pack(const Command& c, unsigned i, std::uint32_t flag) {
  using namespace command_detail;
  const auto what = static_cast<std::uint64_t>(c.kind) | static_cast<std::uint64_t>(c.flags) << 8 |
                    static_cast<std::uint64_t>(c.dtype) << 16 | static_cast<std::uint64_t>(c.op) << 24 |
                    static_cast<std::uint64_t>(c.algorithm) << 32 | static_cast<std::uint64_t>(c.protocol) << 40 |
                    static_cast<std::uint64_t>(c.channels) << 48;
  switch (i) {
    case 0: return quad(reinterpret_cast<std::uintptr_t>(c.in), low(c.count), flag);
    case 1: return quad(reinterpret_cast<std::uintptr_t>(c.out), high(c.count), flag);
    case 2: return quad(c.tag, c.chunk_bytes, flag);
    default: return quad(what, chunk_lines(c) | element_shift(c.dtype) << 16, flag);
  }
}

RINGBELL_HD inline Command command_unpack(const Quad q[kCommandQuads]) {
  using namespace command_detail;
  const std::uint64_t what = q[3].lo;
  Command c{};
  c.in = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(q[0].lo));
  c.out = reinterpret_cast<void*>(static_cast<std::uintptr_t>(q[1].lo));
  c.count = (q[0].hi & 0xffffffffu) | q[1].hi << 32;
  c.tag = q[2].lo;
  c.chunk_bytes = low(q[2].hi);
  c.kind = static_cast<CommandKind>(what & 0xff);
  c.flags = static_cast<std::uint8_t>(what >> 8);
  c.dtype = static_cast<DType>(what >> 16 & 0xff);
  c.op = static_cast<ReduceOp>(what >> 24 & 0xff);
  c.algorithm = static_cast<Algorithm>(what >> 32 & 0xff);
  c.protocol = static_cast<Protocol>(what >> 40 & 0xff);
  c.channels = static_cast<std::uint16_t>(what >> 48);
  return c;
}

RINGBELL_HD inline CommandKind command_kind(const Quad q[kCommandQuads]) {
  return static_cast<CommandKind>(q[3].lo & 0xff);
}

RINGBELL_HD inline Protocol command_protocol(const Quad q[kCommandQuads]) {
  return static_cast<Protocol>(q[3].lo >> 40 & 0xff);
}

RINGBELL_HD inline Algorithm command_algorithm(const Quad q[kCommandQuads]) {
  return static_cast<Algorithm>(q[3].lo >> 32 & 0xff);
}

RINGBELL_HD inline bool command_ends_burst(const Quad q[kCommandQuads]) {
  return (q[3].lo >> 8 & kFlagLastOfBurst) != 0;
}

/// Bytes of the message of a command as it came, and lines of its wire format in a chunk (65535: or more).
RINGBELL_HD inline std::uint64_t command_bytes(const Quad q[kCommandQuads], std::uint64_t count) {
  return count << (q[3].hi >> 16 & 3);
}
RINGBELL_HD inline std::uint32_t command_lines(const Quad q[kCommandQuads]) {
  return static_cast<std::uint32_t>(q[3].hi) & command_detail::kMaxLines;
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_LAYOUT_COMMAND_HPP_
