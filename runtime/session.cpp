// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.hpp"

#include <array>
#include <chrono>
#include <exception>
#include <thread>

#include "host/clock.hpp"
#include "host/env.hpp"
#include "host/executor.hpp"
#include "host/launch_env.hpp"
#include "host/segment_name.hpp"
#include "host/unique_id.hpp"

namespace ringbell::session {
namespace {

constexpr double kPatienceS = 1.5;

}  // namespace

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
    const std::string name = host::unique_id_segment_name(host::unique_id_from_key(launch.session_key));
    // What died just now still looks alive: a fresh heartbeat (0.1 s), a segment that may be in the making (1 s).
    const host::Deadline deadline = host::Deadline::after_seconds(kPatienceS);
    std::string why = host::remove_dead_segment(name);
    while (!why.empty() && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      why = host::remove_dead_segment(name);
    }
    return why.empty() ? why : "left /dev/shm" + name + " as it is: " + why;
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
