// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/all_reduce_cases.hpp"

#include <array>
#include <set>

#include "device/ring/schedule.hpp"
#include "tests/support/buffers.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr int kFills = 2;
constexpr int kPlacements = 3;
constexpr std::array<FillKind, kFills> kFillKinds{FillKind::kMixed, FillKind::kBits};

using Row = std::array<int, 6>;  // dtype, op, in shift, out shift, placement, fill: as indices
constexpr Row kValues{
    kDTypeCount, kReduceOpCount, static_cast<int>(std::size(kShifts)), static_cast<int>(std::size(kShifts)),
    kPlacements, kFills};
constexpr std::array<const char*, 6> kNames{"dtype", "op", "in shift", "out shift", "placement", "fill"};

AllReduceCase case_of(const Row& row) {
  AllReduceCase c;
  c.dtype = static_cast<DType>(row[0]);
  c.op = static_cast<ReduceOp>(row[1]);
  c.in_shift = kShifts[row[2]];
  c.out_shift = kShifts[row[3]];
  c.placement = static_cast<Placement>(row[4]);
  c.fill = kFillKinds[static_cast<std::size_t>(row[5])];
  return c;
}

int index_of_shift(unsigned shift) {
  int i = 0;
  while (kShifts[i] != shift) ++i;
  return i;
}

Row row_of(const AllReduceCase& c) {
  return {static_cast<int>(c.dtype),   static_cast<int>(c.op),        index_of_shift(c.in_shift),
          index_of_shift(c.out_shift), static_cast<int>(c.placement), c.fill == FillKind::kBits ? 1 : 0};
}

}  // namespace

std::string case_text(const AllReduceCase& c) {
  static constexpr const char* kPlaces[] = {"out of place", "in place", "in place on odd ranks"};
  return std::to_string(c.count) + " " + dtype_name(c.dtype) + " " + reduce_op_name(c.op) + " " +
         algorithm_name(c.algorithm) + " " + protocol_name(c.protocol) + " in+" + std::to_string(c.in_shift) + " out+" +
         std::to_string(c.out_shift) + " " + kPlaces[static_cast<int>(c.placement)];
}

std::vector<AllReduceCase> pairwise_rows(std::size_t rows) {
  std::vector<AllReduceCase> cases;
  std::uint64_t random = 12345;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto dtype = static_cast<int>(i % kDTypeCount);
    const auto k = static_cast<int>(i / kDTypeCount);
    // Type and operation in full; shifts as two lines of different slope, which meet in every pair; the rest drawn.
    Row row{dtype, k % kReduceOpCount, (k + 3 * dtype) % kValues[2], (2 * k + 5 * dtype) % kValues[3], 0, 0};
    for (std::size_t j = 4; j < row.size(); ++j) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      row[j] = static_cast<int>((random >> 33) % static_cast<std::uint64_t>(kValues[j]));
    }
    cases.push_back(case_of(row));
  }
  return cases;
}

std::vector<std::string> missing_pairs(const std::vector<AllReduceCase>& rows) {
  std::vector<std::string> missing;
  for (std::size_t a = 0; a < kValues.size(); ++a) {
    for (std::size_t b = a + 1; b < kValues.size(); ++b) {
      std::set<std::pair<int, int>> seen;
      for (const AllReduceCase& c : rows) {
        const Row row = row_of(c);
        seen.insert({row[a], row[b]});
      }
      for (int x = 0; x < kValues[a]; ++x) {
        for (int y = 0; y < kValues[b]; ++y) {
          if (seen.count({x, y}) == 0) {
            missing.push_back(std::string(kNames[a]) + " " + std::to_string(x) + " with " + kNames[b] + " " +
                              std::to_string(y));
          }
        }
      }
    }
  }
  return missing;
}

PlanBasis plan_basis(int world, DeviceKind device, std::uint32_t slot_bytes) {
  return {static_cast<std::uint32_t>(world), device, true,
          device::window_layout(slot_bytes != 0 ? slot_bytes : device::kDefaultSlotBytes, device::kDefaultSlots,
                                static_cast<std::uint32_t>(world))};
}

int first_rank(const PlanBasis& basis, std::uint64_t bytes, std::uint64_t chunk_bytes, std::uint64_t byte) {
  const std::uint64_t round_bytes = chunk_bytes * basis.world;
  const std::uint64_t offset = byte / round_bytes * round_bytes;  // every round but the last is whole
  const std::uint64_t chunk = device::round_chunk_bytes(bytes, offset, chunk_bytes, basis.world);
  return static_cast<int>(device::first_fold(static_cast<std::uint32_t>((byte - offset) / chunk), basis.world));
}

std::vector<std::byte> expected_result(const AllReduceCase& c, std::uint64_t data, std::uint64_t seed,
                                       const PlanBasis& basis) {
  const std::size_t element = dtype_bytes(c.dtype);
  const std::uint64_t bytes = c.count * element;
  std::vector<std::vector<std::byte>> inputs(basis.world, std::vector<std::byte>(bytes));
  std::vector<const void*> pointers;
  for (std::uint32_t rank = 0; rank < basis.world; ++rank) {
    fill_input(inputs[rank].data(), c.count, c.dtype, static_cast<int>(rank), data, seed, c.fill);
    pointers.push_back(inputs[rank].data());
  }
  std::vector<std::byte> expected(bytes);
  const Path path = plan_call(basis, bytes, c.algorithm, c.protocol);
  const std::uint64_t chunk = path.chunk_bytes;
  if (path.algorithm == Algorithm::kOneShot) {
    direct_reference(expected.data(), pointers, c.count, c.dtype, c.op);
    return expected;
  }
  ring_reference(expected.data(), pointers, c.count, c.dtype, c.op,
                 [&](std::uint64_t index) { return first_rank(basis, bytes, chunk, index * element); });
  return expected;
}

std::string suite_failure(const std::vector<AllReduceCase>& cases, const std::vector<SuiteResult>& results) {
  std::string text;
  for (const SuiteResult& result : results) {
    if (!result.failure.empty()) text += result.failure + "\n";
  }
  if (!text.empty()) return text;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      if (results[rank].hashes.size() != cases.size()) return "rank " + std::to_string(rank) + " did not run all cases";
      if (results[rank].hashes[i] != results[0].hashes[i]) {
        return case_text(cases[i]) + ": rank " + std::to_string(rank) + " has other bits than rank 0";
      }
    }
  }
  return "";
}

std::vector<SuiteResult> run_on_threads(int world, const Config& config, const std::vector<AllReduceCase>& cases,
                                        std::uint64_t seed, double limit_s,
                                        const std::function<CallWay()>& way_of_rank) {
  const PlanBasis basis = plan_basis(world, DeviceKind::kCpu, config.slot_bytes);
  return run_ranks(
      world, config,
      [&](Communicator& comm) {
        HostBuffer in;
        HostBuffer out;
        return run_cases(comm, cases, seed, basis, in, out, way_of_rank());
      },
      limit_s);
}

}  // namespace ringbell::test
