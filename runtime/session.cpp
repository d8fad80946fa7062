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
#include "host/segment_census.hpp"
#include "host/segment_name.hpp"
#include "host/segment_probe.hpp"
#include "host/unique_id.hpp"

namespace ringbell::session {
namespace {

constexpr double kPatienceS = 1.5;

std::string name_of_session(const std::string& token) {
  // Asked as a rank of that session would, so that both derive one name.
  const host::Env env({{"RINGBELL_RANK", "0"}, {"RINGBELL_WORLD", "1"}, {"RINGBELL_SESSION", token}});
  return host::unique_id_segment_name(host::unique_id_of_launch(host::resolve_launch(env)));
}

}  // namespace

std::string segment_name(const std::string& text) {
  const std::string folder = host::shm_path("");
  if (text.starts_with(folder + "/")) return text.substr(folder.size());
  if (text.starts_with("/ringbell-")) return text;
  return text.starts_with("ringbell-") ? std::string("/").append(text) : name_of_session(text);
}

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  host::random_bytes(bytes.data(), bytes.size());
  return host::to_hex(bytes.data(), bytes.size());
}

std::string remove_leftover(const std::string& token) noexcept {
  try {
    const std::string name = name_of_session(token);
    // What died just now still looks alive: a fresh heartbeat (0.1 s), a segment that may be in the making (1 s).
    const host::Deadline deadline = host::Deadline::after_seconds(kPatienceS);
    std::string why = host::remove_dead_segment(name);
    while (!why.empty() && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      why = host::remove_dead_segment(name);
    }
    return why.empty() ? why : "left " + host::shm_path(name) + " as it is: " + why;
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<Object> clean(const std::optional<std::string>& name, bool removes) {
  const auto names = name ? std::vector{segment_name(*name)} : host::segment_names_of_user();
  const auto removal = removes ? host::Removal::kIfDead : host::Removal::kNever;
  std::vector<Object> objects;
  for (const auto& finding : host::take_census(names, removal, host::Deadline::after_seconds(kPatienceS))) {
    const auto& [state, why, settled, removed] = finding.verdict;
    const bool in_the_way = state == host::SegmentState::kUnclear || state == host::SegmentState::kForeign ||
                            state == host::SegmentState::kStranger;
    objects.push_back({host::shm_path(finding.name), host::segment_state_name(state), why, finding.bytes,
                       host::is_dead(state), removed, in_the_way});
  }
  return objects;
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
