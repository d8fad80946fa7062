// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/segment_census.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/segment_name.hpp"
#include "host/unique_id.hpp"

namespace ringbell::host {
namespace {

constexpr long kLookAgainNs = 20'000'000;
constexpr std::size_t kTokenDigits = 16;

bool is_segment_name(const std::string& name) {
  const std::string prefix = segment_name_prefix(geteuid());
  if (!name.starts_with(prefix) || name.size() != prefix.size() + kTokenDigits) return false;
  return name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

/// @return false when nothing has the name
bool look(SegmentFinding& finding, Removal removal) {
  struct stat info {};
  if (lstat(shm_path(finding.name).c_str(), &info) != 0 && errno == ENOENT) return false;
  finding.bytes = static_cast<unsigned long long>(info.st_blocks) * 512;
  try {
    if (is_segment_name(finding.name)) {
      finding.verdict = probe_segment(finding.name, removal);
    } else if (info.st_uid != geteuid()) {
      finding.verdict = {SegmentState::kForeign, fmt::format("belongs to uid {}", info.st_uid)};
    } else {
      finding.verdict = {SegmentState::kStranger, fmt::format("no segment of uid {} has such a name", geteuid())};
    }
  } catch (const Error& error) {
    const bool foreign = info.st_uid != geteuid();
    finding.verdict = {foreign ? SegmentState::kForeign : SegmentState::kStranger, error.what()};
  }
  return finding.verdict.state != SegmentState::kGone;
}

}  // namespace

std::vector<std::string> segment_names_of_user() {
  const std::string folder = shm_path("");
  const std::string prefix = segment_name_prefix(geteuid());
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = fmt::format("/{}", entry->path().filename().string());
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  if (error) throw_errno("opendir", folder, "mount a tmpfs there: mount -t tmpfs tmpfs /dev/shm", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<SegmentFinding> take_census(const std::vector<std::string>& names, Removal removal, Deadline deadline) {
  std::vector<SegmentFinding> findings;
  for (const std::string& name : names) {
    SegmentFinding finding{name, {}, 0};
    if (look(finding, removal)) findings.push_back(std::move(finding));
  }
  const auto open_question = [](const SegmentFinding& finding) { return !finding.verdict.settled; };
  while (std::any_of(findings.begin(), findings.end(), open_question) && !deadline.expired()) {
    sleep_ns(kLookAgainNs);
    std::erase_if(findings, [&](SegmentFinding& finding) { return open_question(finding) && !look(finding, removal); });
  }
  return findings;
}

}  // namespace ringbell::host
