// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/unique_id.hpp"

#include <cstring>
#include <type_traits>

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include "host/error.hpp"

namespace ringbell::host {
namespace {

constexpr std::uint64_t kIdMagic = 0x6469656c6c654272;
constexpr std::uint32_t kIdVersion = 1;
constexpr const char* kIdRemedy = "pass the 128 bytes that unique_id_create gave, unchanged, to every rank";

struct IdFields {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t uid;
  std::uint8_t token[16];
  std::uint8_t reserved[88];  // zero
  std::uint64_t checksum;     // of everything before it
};
static_assert(sizeof(IdFields) == kUniqueIdBytes && std::is_trivially_copyable_v<IdFields>);

IdFields fields_of(const UniqueId& id) noexcept {
  IdFields fields;
  std::memcpy(&fields, id.bytes, sizeof fields);
  return fields;
}

std::uint64_t checksum_of(const IdFields& fields) noexcept {
  char bytes[offsetof(IdFields, checksum)];
  std::memcpy(bytes, &fields, sizeof bytes);
  return hash64({bytes, sizeof bytes}, kIdMagic);
}

UniqueId make_id(const Token& token) noexcept {
  IdFields fields{};
  fields.magic = kIdMagic;
  fields.version = kIdVersion;
  fields.uid = geteuid();
  std::memcpy(fields.token, token.data(), token.size());
  fields.checksum = checksum_of(fields);
  UniqueId id;
  std::memcpy(id.bytes, &fields, sizeof fields);
  return id;
}

}  // namespace

void random_bytes(void* bytes, std::size_t size) {
  auto* out = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = getrandom(out, size, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_errno("getrandom", fmt::format("{} bytes", size));
    }
    out += got;
    size -= static_cast<std::size_t>(got);
  }
}

std::string to_hex(const void* bytes, std::size_t size) {
  std::string text;
  const auto* in = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", in[i]);
  return text;
}

std::uint64_t hash64(std::string_view text, std::uint64_t seed) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ULL ^ seed;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

UniqueId unique_id_create() {
  Token token;
  random_bytes(token.data(), token.size());
  return make_id(token);
}

UniqueId unique_id_from_key(std::string_view session_key) {
  const std::uint64_t halves[2] = {hash64(session_key, 1), hash64(session_key, 0x9e3779b97f4a7c15ULL)};
  Token token;
  std::memcpy(token.data(), halves, token.size());
  return make_id(token);
}

void unique_id_validate(const UniqueId& id) {
  const IdFields fields = fields_of(id);
  if (fields.magic != kIdMagic) {
    throw_error(
        Status::kInvalidArgument,
        fmt::format("the unique id does not come from unique_id_create (it starts with {})", to_hex(id.bytes, 8)),
        kIdRemedy);
  }
  if (fields.version != kIdVersion) {
    throw_error(Status::kInvalidArgument,
                fmt::format("the unique id has version {}, this library reads version {}", fields.version, kIdVersion),
                "use one version of ringbell on all ranks");
  }
  if (fields.checksum != checksum_of(fields)) {
    throw_error(Status::kInvalidArgument, "the unique id was changed or cut on its way: its checksum is wrong",
                kIdRemedy);
  }
  if (fields.uid != geteuid()) {
    throw_error(Status::kInvalidArgument,
                fmt::format("the unique id was made by uid {}, this process runs as uid {}", fields.uid, geteuid()),
                "run all ranks as one user");
  }
}

Token unique_id_token(const UniqueId& id) noexcept {
  const IdFields fields = fields_of(id);
  Token token;
  std::memcpy(token.data(), fields.token, token.size());
  return token;
}

std::string unique_id_segment_name(const UniqueId& id) {
  const IdFields fields = fields_of(id);
  return segment_name_prefix(fields.uid) + to_hex(fields.token, 8);
}

std::string segment_name_prefix(std::uint32_t uid) { return fmt::format("/ringbell-{}-", uid); }

}  // namespace ringbell::host
