// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One suite of AllReduce cases for every executor: what a case is, how its inputs and its result are known, and the
// loop of one rank over many cases. Starting ranks, and memory that is not the host's, are the test's.
#ifndef RINGBELL_TESTS_SUPPORT_ALL_REDUCE_CASES_HPP_
#define RINGBELL_TESTS_SUPPORT_ALL_REDUCE_CASES_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/plan.hpp"
#include "runtime/ringbell.hpp"
#include "tests/support/reference.hpp"

namespace ringbell::test {

enum class Placement : std::uint8_t { kOutOfPlace, kInPlace, kMixed };  // kMixed: odd ranks in place

struct AllReduceCase {
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Protocol protocol = Protocol::kAuto;
  unsigned in_shift = 0;  // bytes past a multiple of 64
  unsigned out_shift = 0;
  Placement placement = Placement::kOutOfPlace;
  FillKind fill = FillKind::kMixed;
  Algorithm algorithm = Algorithm::kAuto;
  std::uint64_t data = 0;  // which inputs; 0: the case's own, different from every other case's
};

inline constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kOneShot};
inline constexpr Protocol kProtocols[] = {Protocol::kLL, Protocol::kLL128, Protocol::kSimple};
inline constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg};
inline constexpr unsigned kShifts[] = {0, 1, 2, 4, 6, 8, 14};
inline constexpr int kWorlds[] = {1, 2, 3, 5, 7, 8};

std::string case_text(const AllReduceCase& c);

/// Type, operation, shifts, placement and kind of values such that every pair of values of two of them occurs, over
/// `rows` cases that only lack count and protocol. The same list on every rank.
std::vector<AllReduceCase> pairwise_rows(std::size_t rows = 240);
/// Pairs of values that `rows` leaves out, as a text per pair; for the test of the list itself.
std::vector<std::string> missing_pairs(const std::vector<AllReduceCase>& rows);

/// What planning rests on, for a communicator with this Config.
PlanBasis plan_basis(int world, DeviceKind device, std::uint32_t slot_bytes);
/// The rank whose input is folded first into element `index`.
int first_rank(const PlanBasis& basis, std::uint64_t bytes, std::uint64_t chunk_bytes, std::uint64_t byte);
/// The whole result, by the reference.
std::vector<std::byte> expected_result(const AllReduceCase& c, std::uint64_t data, std::uint64_t seed,
                                       const PlanBasis& basis);

struct SuiteResult {
  std::vector<std::uint64_t> hashes;  ///< of `out`, by case
  std::string failure;                ///< "" or the first one
};

/// Makes one call and waits for its result.
using CallWay =
    std::function<Status(Communicator&, const void* in, void* out, const AllReduceCase& c, const CallOptions& options)>;
inline Status call_by_host(Communicator& comm, const void* in, void* out, const AllReduceCase& c,
                           const CallOptions& options) {
  return comm.wait(comm.all_reduce(in, out, c.count, c.dtype, c.op, options));
}

/// Runs all cases as this rank; case i is compared with the reference on rank i mod world and hashed on every rank.
/// Buffer has reset(bytes, shift), data(), write(from), read(to), poison() and damage() as HostBuffer, and keeps its
/// memory over reset.
template <class Buffer>
SuiteResult run_cases(Communicator& comm, const std::vector<AllReduceCase>& cases, std::uint64_t seed,
                      const PlanBasis& basis, Buffer& in, Buffer& out, const CallWay& call = call_by_host) {
  SuiteResult result;
  std::vector<std::byte> input;
  std::vector<std::byte> got;
  const auto fail = [&](const AllReduceCase& c, const std::string& text) {
    result.failure = "rank " + std::to_string(comm.rank()) + ", " + case_text(c) + ": " + text;
    return result;
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const AllReduceCase& c = cases[i];
    const std::uint64_t data = c.data != 0 ? c.data : (std::uint64_t{1} << 32) + i;
    const std::size_t bytes = c.count * dtype_bytes(c.dtype);
    const bool in_place =
        c.placement == Placement::kInPlace || (c.placement == Placement::kMixed && comm.rank() % 2 == 1);
    input.resize(bytes);
    got.resize(bytes);
    fill_input(input.data(), c.count, c.dtype, comm.rank(), data, seed, c.fill);
    out.reset(bytes, c.out_shift);
    if (in_place) {
      out.write(input.data());
    } else {
      in.reset(bytes, c.in_shift);
      in.write(input.data());
      out.poison();
    }
    CallOptions options;
    options.protocol = c.protocol;
    options.algorithm = c.algorithm;
    const Status status = call(comm, in_place ? out.data() : in.data(), out.data(), c, options);
    if (status != Status::kOk) return fail(c, std::string(status_name(status)) + ": " + comm.last_error());
    out.read(got.data());
    result.hashes.push_back(hash_bytes(got.data(), bytes));
    if (const std::string damage = out.damage(); !damage.empty()) return fail(c, "out: " + damage);
    if (!in_place) {
      if (const std::string damage = in.damage(); !damage.empty()) return fail(c, "in: " + damage);
    }
    if (static_cast<int>(i % static_cast<std::size_t>(comm.world())) == comm.rank()) {
      const std::vector<std::byte> expected = expected_result(c, data, seed, basis);
      if (const std::string text = difference(got.data(), expected.data(), c.count, c.dtype); !text.empty()) {
        return fail(c, text);
      }
      if (!in_place) {
        in.read(got.data());
        if (!difference(got.data(), input.data(), c.count, c.dtype).empty()) return fail(c, "the input was changed");
      }
    }
  }
  return result;
}

/// "" if no rank failed and all ranks have the same hashes.
std::string suite_failure(const std::vector<AllReduceCase>& cases, const std::vector<SuiteResult>& results);

/// The suite on CPU threads: one communicator, all cases.
std::vector<SuiteResult> run_on_threads(
    int world, const Config& config, const std::vector<AllReduceCase>& cases, std::uint64_t seed, double limit_s = 60,
    const std::function<CallWay()>& way_of_rank = [] { return call_by_host; });

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_ALL_REDUCE_CASES_HPP_
