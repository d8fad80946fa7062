// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit floats. Values out of range and infinities saturate to the largest finite value.
#ifndef RINGBELL_DEVICE_MATH_FP8_HPP_
#define RINGBELL_DEVICE_MATH_FP8_HPP_

#include "device/math/narrow_float.hpp"

namespace ringbell::device {

/// No infinities; 0x7f and 0xff are its only NaNs; largest 448.
using Float8E4M3 = NarrowFloat<4, 3, 0x7f, 0x7e, 0x7f>;

/// Infinities (which are read, and never made) and three NaNs a sign; largest finite 57344.
using Float8E5M2 = NarrowFloat<5, 2, 0x7c, 0x7b, 0x7f>;

}  // namespace ringbell::device

#endif  // RINGBELL_DEVICE_MATH_FP8_HPP_
