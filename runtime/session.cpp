// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.hpp"

#include <array>
#include <exception>

#include "host/env.hpp"
#include "host/executor.hpp"
#include "host/launch_env.hpp"
#include "host/segment_name.hpp"
#include "host/unique_id.hpp"

namespace ringbell::session {

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  host::random_bytes(bytes.data(), bytes.size());
  return host::to_hex(bytes.data(), bytes.size());
}

std::string remove_leftover(const std::string& token) noexcept {
  try {
    // Asked as a rank of that session would, so that both derive one name.
    const host::Env env({{"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "1"}, {"RINGBELL_SESSION", token}});
    const host::Launch launch = host::resolve_launch(env);
    return host::remove_dead_segment(host::unique_id_segment_name(host::unique_id_from_key(launch.session_key)));
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::optional<Place> place_from_environment() {
  const auto launch = host::find_launch(host::Env::of_process());
  if (!launch) return std::nullopt;
  return Place{launch->rank, launch->world, launch->local_rank};
}

std::string environment_table() { return host::render_env_table(host::Env::of_process()); }

void check_environment() { host::Env::of_process().check_all(); }

int cuda_device_count(std::string* why) noexcept { return host::cuda_device_count(why); }

}  // namespace ringbell::session
