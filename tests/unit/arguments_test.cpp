// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// What is refused of a call, and in which words.
#include "runtime/arguments.hpp"

#include <gtest/gtest.h>

namespace ringbell {
namespace {

const void* in_at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }
void* out_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
AllReduceCall call(std::uintptr_t in, std::uintptr_t out, std::uint64_t count, DType dtype = DType::kFloat32) {
  return {in_at(in), out_at(out), count, dtype};
}

TEST(Arguments, InPlaceTouchingAndApartAreGoodInEitherOrder) {
  for (const AllReduceCall& good :
       {call(4096, 4096, 10), call(4096, 4136, 10), call(4136, 4096, 10), call(64, 1 << 20, 1000)}) {
    EXPECT_EQ(find_fault(good), ArgumentFault::kNone);
    EXPECT_EQ(fault_text(good, ArgumentFault::kNone), "");
  }
}

TEST(Arguments, OneSharedByteIsAnOverlap) {
  EXPECT_EQ(find_fault(call(4096, 4135, 10)), ArgumentFault::kOverlap);
  EXPECT_EQ(find_fault(call(4135, 4096, 10)), ArgumentFault::kOverlap);
  EXPECT_EQ(find_fault(call(4096, 4097, 2, DType::kInt8)), ArgumentFault::kOverlap);
  EXPECT_EQ(find_fault(call(4096, 4097, 1, DType::kInt8)), ArgumentFault::kNone);
}

TEST(Arguments, CountZeroLooksAtNoPointer) {
  EXPECT_EQ(find_fault(call(0, 0, 0)), ArgumentFault::kNone);
  EXPECT_EQ(find_fault(call(1, 2, 0)), ArgumentFault::kNone);
  EXPECT_EQ(find_fault(call(0, 4096, 1)), ArgumentFault::kNullIn);
  EXPECT_EQ(find_fault(call(4096, 0, 1)), ArgumentFault::kNullOut);
}

TEST(Arguments, LengthsThatDoNotFitAreRefusedForEveryType) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::uint64_t most = (~std::uint64_t{0} >> 1) / dtype_bytes(dtype);
    EXPECT_EQ(find_fault(call(4096, 4096, most, dtype)), ArgumentFault::kNone) << d;
    EXPECT_EQ(find_fault(call(4096, 4096, most + 1, dtype)), ArgumentFault::kTooLong) << d;
    EXPECT_EQ(find_fault(call(4096, 4096, ~std::uint64_t{0}, dtype)), ArgumentFault::kTooLong) << d;
  }
  EXPECT_EQ(find_fault(call(~std::uintptr_t{0} - 10, 4096, 100)), ArgumentFault::kTooLong);
  EXPECT_EQ(find_fault(call(4096, ~std::uintptr_t{0} - 10, 100)), ArgumentFault::kTooLong);
}

TEST(Arguments, EveryFaultHasATextWithTheValueAndTheRemedy) {
  AllReduceCall bad = call(4096, 4100, 77);
  EXPECT_NE(fault_text(bad, find_fault(bad)).find("77 elements of float32"), std::string::npos);
  bad.dtype = static_cast<DType>(33);
  EXPECT_EQ(find_fault(bad), ArgumentFault::kDType);
  EXPECT_NE(fault_text(bad, ArgumentFault::kDType).find("dtype 33"), std::string::npos);
  bad = call(4096, 4096, 1);
  bad.op = static_cast<ReduceOp>(200);
  EXPECT_EQ(find_fault(bad), ArgumentFault::kOp);
  EXPECT_NE(fault_text(bad, ArgumentFault::kOp).find("op 200"), std::string::npos);
  bad.op = ReduceOp::kSum;
  bad.options.protocol = static_cast<Protocol>(4);
  EXPECT_EQ(find_fault(bad), ArgumentFault::kProtocol);
  bad.options.algorithm = static_cast<Algorithm>(3);
  EXPECT_EQ(find_fault(bad), ArgumentFault::kAlgorithm);
  for (int fault = 1; fault <= static_cast<int>(ArgumentFault::kOverlap); ++fault) {
    EXPECT_GT(fault_text(bad, static_cast<ArgumentFault>(fault)).size(), 20u) << fault;
  }
}

}  // namespace
}  // namespace ringbell
