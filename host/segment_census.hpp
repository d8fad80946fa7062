// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// All segments of this user in /dev/shm, by their names: what each is, and the dead ones removed on request.
#ifndef RINGBELL_HOST_SEGMENT_CENSUS_HPP_
#define RINGBELL_HOST_SEGMENT_CENSUS_HPP_

#include <string>
#include <vector>

#include "host/clock.hpp"
#include "host/segment_judgement.hpp"
#include "host/segment_probe.hpp"

namespace ringbell::host {

struct SegmentFinding {
  std::string name;  ///< "/ringbell-0-0123456789abcdef"; whatever follows the uid if it is not ours
  SegmentVerdict verdict;
  unsigned long long bytes = 0;  ///< of /dev/shm that it takes
};

/// Names in /dev/shm that begin as this user's segments do, sorted, whatever they lead to. @throws Error(kSystem):
/// /dev/shm cannot be read
std::vector<std::string> segment_names_of_user();

/// Looks at each name, and again until `deadline` at those of which a second look may tell more. Names that are gone by
/// then are left out, those of another user's or other content are kForeign and kStranger and stay.
/// @return in the order of `names`
std::vector<SegmentFinding> take_census(const std::vector<std::string>& names, Removal removal, Deadline deadline);

}  // namespace ringbell::host

#endif  // RINGBELL_HOST_SEGMENT_CENSUS_HPP_
