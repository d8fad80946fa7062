// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What a test expects: inputs as a function of (rank, call, seed, index), the result of a whole AllReduce, and a bound
// on its error. Shares no code with device/math (values go through double and <cmath>), so that one checks the other.
// Not a fast path: about 50 ns an element and rank.
#ifndef RINGBELL_TESTS_SUPPORT_REFERENCE_HPP_
#define RINGBELL_TESTS_SUPPORT_REFERENCE_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/ringbell_types.hpp"

namespace ringbell::test {

enum class FillKind {
  kExact,  ///< small integers: sums of up to 8 ranks are exact in every type and order (e5m2: -1, 0, 1)
  kMixed,  ///< floats of many exponents whose sums stay finite, subnormals too; integers: all bits
  kBits,   ///< any pattern: zeros of both signs, NaN payloads, infinities, subnormals, words equal to a flag or its
           ///< successor
};

/// Writes `count` elements at `data`, which needs no alignment. Same arguments, same bytes; any other call, other
/// values.
void fill_input(void* data, std::uint64_t count, DType dtype, int rank, std::uint64_t call, std::uint64_t seed,
                FillKind kind = FillKind::kMixed);

/// The rank whose element comes first in the fold of element `index`.
using StartOf = std::function<int(std::uint64_t index)>;

/// The result of a ring in which element i is folded in the order start_of(i), start_of(i) + 1, ... (mod world) and
/// every fold rounds to `dtype`; kAvg divides in the last fold. One input gives a copy. `out` may be one of the inputs.
/// @param inputs one buffer of `count` elements a rank, any alignment
void ring_reference(void* out, const std::vector<const void*>& inputs, std::uint64_t count, DType dtype, ReduceOp op,
                    const StartOf& start_of);

/// The result of the direct algorithms: element i is folded from rank 0 to the last one; floats of 8 and 16 bits sum,
/// multiply and average in float32 and are rounded to `dtype` once. As ring_reference else.
void direct_reference(void* out, const std::vector<const void*>& inputs, std::uint64_t count, DType dtype, ReduceOp op);

/// One fold of two elements, each in the low bits of its argument.
/// @param divide_by world size in kAvg's last fold, else 0
std::uint64_t fold_reference(std::uint64_t a, std::uint64_t b, DType dtype, ReduceOp op, std::uint32_t divide_by);

/// The value of an element: exact but for 64-bit integers, which round.
double element_value(std::uint64_t bits, DType dtype);

/// The element nearest to a float32 value (ties to even, saturation as device/math), by way of double. Narrow floats
/// only.
std::uint64_t element_nearest(float value, DType dtype);

/// How far the ring's sum or average may be from the exact one, whatever the order, if nothing overflows. With u half a
/// unit in the last place at 1 (2^-24, 2^-53, 2^-11, 2^-8, 2^-4, 2^-3), plus 2^-24 for the fold in float32 of narrower
/// types, s the smallest subnormal, N ranks:  sum: (N-1) (u (1+u)^(N-2) sum|x| + s/2);  average: that, plus s/2 for the
/// last rounding, with sum|x| and the other roundings divided by N, and 2^-23 (2^-52) more relative error for 1/N.
double ring_error_bound(DType dtype, ReduceOp op, int world, double sum_of_magnitudes);

/// @return elements of `out` farther from the float64 result than ring_error_bound; elements with a NaN or an infinity
/// in any input or beyond the type's range are not judged. kSum and kAvg of 8-, 16- and 32-bit floats.
std::uint64_t count_outside_bound(const void* out, const std::vector<const void*>& inputs, std::uint64_t count,
                                  DType dtype, ReduceOp op);

/// "" if the buffers hold the same bits, else the first difference, for a test's message, and how many there are.
std::string difference(const void* got, const void* expected, std::uint64_t count, DType dtype);

/// A hash of bytes, the same on every machine: ranks compare these.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_REFERENCE_HPP_
