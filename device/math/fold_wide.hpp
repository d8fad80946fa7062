// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Folds of all ranks' elements at once, in rank order, for the formats narrower than float32: accumulated in float32
// and rounded once. Two ranks need none of it: one fold rounds once.
#ifndef RINGBELL_DEVICE_MATH_FOLD_WIDE_HPP_
#define RINGBELL_DEVICE_MATH_FOLD_WIDE_HPP_

#include "device/math/reduce.hpp"

namespace ringbell::device {

/// True where a fold after the other would round more than once.
RINGBELL_HD constexpr bool folds_wide(DType dtype, ReduceOp op, std::uint32_t ranks) {
  return ranks > 2 && op != ReduceOp::kMin && op != ReduceOp::kMax && dtype_is_float(dtype) && dtype_bytes(dtype) <= 2;
}

namespace detail {

// Element by element: one accumulator, and a pack is loaded as often as it has elements.
template <class Format, class Load>
RINGBELL_HD RINGBELL_INLINE std::uint64_t fold_all(const Load& load, std::uint32_t ranks, bool product, float scale) {
  std::uint64_t packed = 0;
  RINGBELL_ROLLED
  for (unsigned at = 0; at < 64; at += Format::kBits) {
    float folded = Format::to_float(static_cast<std::uint32_t>(load(0) >> at));  // looks at one element's bits only
    RINGBELL_ROLLED
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      const float value = Format::to_float(static_cast<std::uint32_t>(load(rank) >> at));
      folded = product ? multiply_rounded(folded, value) : add_rounded(folded, value);
    }
    packed |= std::uint64_t{Format::from_float(multiply_rounded(folded, scale))} << at;
  }
  return packed;
}

}  // namespace detail

/// Folds 8 bytes of every rank. @param load maps a rank, 0 .. ranks - 1, to its pack; folds_wide holds
template <class Load>
RINGBELL_HD RINGBELL_INLINE std::uint64_t fold_wide(const Load& load, DType dtype, ReduceOp op, std::uint32_t ranks) {
  const bool product = op == ReduceOp::kProd;
  const float scale = op == ReduceOp::kAvg ? reciprocal_rounded(static_cast<float>(ranks)) : 1.0F;
  switch (dtype) {
    case DType::kFloat16: return detail::fold_all<Float16>(load, ranks, product, scale);
    case DType::kBFloat16: return detail::fold_all<BFloat16>(load, ranks, product, scale);
    case DType::kFloat8E4M3: return detail::fold_all<Float8E4M3>(load, ranks, product, scale);
    default: return detail::fold_all<Float8E5M2>(load, ranks, product, scale);
  }
}

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_FOLD_WIDE_HPP_
