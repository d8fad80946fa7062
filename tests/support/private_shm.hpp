// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A /dev/shm of one's own for a forked process and what it starts: tests may then count and remove what lies there
// without meeting other tests. Mounting needs root or user namespaces.
#ifndef RINGBELL_TESTS_SUPPORT_PRIVATE_SHM_HPP_
#define RINGBELL_TESTS_SUPPORT_PRIVATE_SHM_HPP_

#include <string>
#include <vector>

namespace ringbell::test {

/// Moves this process into a mount namespace with an empty /dev/shm, under the same uid. @return false: not allowed.
/// Call it while the process has one thread.
bool enter_private_shm();
/// Asks that in a process of its own.
bool may_enter_private_shm();

/// Paths of what /dev/shm holds now, sorted.
std::vector<std::string> shm_entries();

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_PRIVATE_SHM_HPP_
