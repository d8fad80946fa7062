// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a launcher needs of the library: a session's name, its clean-up, and what the environment says. For the program
// in tools/; not installed, no part of the public API.
#ifndef RINGBELL_RUNTIME_SESSION_HPP_
#define RINGBELL_RUNTIME_SESSION_HPP_

#include <optional>
#include <string>
#include <vector>

namespace ringbell::session {

/// A value for RINGBELL_SESSION: 32 random hex digits. Belongs into environments, never into argument lists.
/// @throws Error(kSystem): no randomness
std::string new_token();

/// Removes what a session left in /dev/shm when its ranks died during set-up. A segment that a living process holds
/// stays.
/// Returns at once when nothing is there, else within two seconds. @return empty, or what was left there and why
std::string remove_leftover(const std::string& token) noexcept;

/// What one object of this user in /dev/shm is.
struct Object {
  std::string path;
  std::string state;         ///< "live", "stale", "half-made", ..
  std::string why;           ///< how that is known
  unsigned long long bytes;  ///< that it takes
  bool dead;                 ///< nothing that lives can miss it
  bool removed;
  bool in_the_way;  ///< neither dead nor in use, as far as can be told: a session of that name could not start
};
/// Goes through the objects, sorted by name, and removes the dead ones if asked. Takes a second and a half at most when
/// something changes meanwhile. @param name nothing for all, else the session's RINGBELL_SESSION or an object's name
/// @throws Error(kInvalidArgument): neither of them. Error(kSystem): /dev/shm cannot be read
std::vector<Object> clean(const std::optional<std::string>& name, bool removes);

/// The name of a session's segment. @param text its RINGBELL_SESSION, or an object's name or path in /dev/shm
/// @throws Error(kInvalidArgument): neither of them
std::string segment_name(const std::string& text);

struct Place {
  int rank;
  int world;
  int local_rank;
};
/// Which rank a launcher says this process is; nullopt without a launcher. @throws Error for a partial or bad set
std::optional<Place> place_from_environment();

/// The table of RINGBELL_* variables with their values here.
std::string environment_table();
/// Reads every variable once. @throws Error(kInvalidArgument) for the first bad one
void check_environment();

/// Visible CUDA devices; 0 with the reason in `why`. Creates no context.
int cuda_device_count(std::string* why = nullptr) noexcept;

}  // namespace ringbell::session

#endif  // RINGBELL_RUNTIME_SESSION_HPP_
