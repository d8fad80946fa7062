// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What the groups leave in the page for the conductor: times and findings of the turn, and a probe's notes.
#include <algorithm>

#include "tools/turns_page.hpp"

namespace ringbell::tools {

double* Turns::samples(int place) const noexcept {
  return reinterpret_cast<double*>(page_ + 1) + static_cast<std::uint64_t>(place) * shape_.samples;
}

void Turns::put(const Row& row) {
  put_text(page_->refusal, row.refusal);
  int place = 0;
  for (const auto& measured : {row.out_of_place, row.in_place}) {
    PlaceResult& result = page_->places[place];
    result = {};
    if (measured) {
      result.measured = 1;
      result.samples = std::min<std::uint64_t>(measured->samples_us.size(), shape_.samples);
      std::copy_n(measured->samples_us.begin(), result.samples, samples(place));
      result.checked = measured->wrong ? 1 : 0;
      result.wrong = measured->wrong.value_or(0);
      result.hashed = measured->hash ? 1 : 0;
      result.hash = measured->hash.value_or(0);
      result.sent_bytes = measured->sent_bytes;
      result.sent_as_expected = measured->sent_as_expected ? 1 : 0;
      result.channels = measured->path.channels;
      result.chunk_bytes = measured->path.chunk_bytes;
      put_text(result.algorithm, measured->path.algorithm);
      put_text(result.protocol, measured->path.protocol);
    }
    ++place;
  }
}

Row Turns::take(const RowPlan& plan) const {
  Row row = row_of(plan);
  row.refusal = page_->refusal;
  for (const int place : {0, 1}) {
    const PlaceResult& result = page_->places[place];
    if (result.measured == 0) continue;
    Measured measured;
    measured.samples_us.assign(samples(place), samples(place) + result.samples);
    measured.us = summarize(measured.samples_us);
    measured.round_p50_us = {measured.us.p50};
    if (result.checked != 0) measured.wrong = result.wrong;
    if (result.hashed != 0) measured.hash = result.hash;
    measured.sent_bytes = result.sent_bytes;
    measured.sent_as_expected = result.sent_as_expected != 0;
    measured.path = {result.algorithm, result.protocol, result.channels, result.chunk_bytes};
    (place == 0 ? row.out_of_place : row.in_place) = std::move(measured);
  }
  return row;
}

// Behind the times.
NotedPath& Turns::noted(int number, std::uint64_t row) const {
  return reinterpret_cast<NotedPath*>(samples(2))[static_cast<std::uint64_t>(number) * shape_.rows + row];
}

void Turns::note_path(int number, std::uint64_t row, const PeerPath& path) {
  put_text(noted(number, row).algorithm, path.algorithm);
  put_text(noted(number, row).protocol, path.protocol);
}

std::optional<PeerPath> Turns::path_noted(int number, std::uint64_t row) const {
  const NotedPath& path = noted(number, row);
  if (path.algorithm[0] == 0) return std::nullopt;
  return PeerPath{path.algorithm, path.protocol, 0, 0};
}

void Turns::note_nvls(int number, bool possible) noexcept {
  group(number).nvls.store(possible ? 2 : 1, std::memory_order_release);
}

std::optional<bool> Turns::nvls_noted(int number) const {
  const std::uint32_t said = group(number).nvls.load(std::memory_order_acquire);
  if (said == 0) return std::nullopt;
  return said == 2;
}

}  // namespace ringbell::tools
