// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Values of the command line and the sizes of a sweep.
#include "tools/parse.hpp"

#include <gtest/gtest.h>

#include "tools/perf_sizes.hpp"

namespace ringbell::tools {
namespace {

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Parse, SizesHaveBinarySuffixes) {
  EXPECT_EQ(parse_size("-b", "0"), 0U);
  EXPECT_EQ(parse_size("-b", "8"), 8U);
  EXPECT_EQ(parse_size("-b", "8B"), 8U);
  EXPECT_EQ(parse_size("-b", "64K"), 65536U);
  EXPECT_EQ(parse_size("-b", "64kb"), 65536U);
  EXPECT_EQ(parse_size("-b", "3M"), 3U << 20);
  EXPECT_EQ(parse_size("-b", "2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("-b", "18446744073709551615"), ~std::uint64_t{0});
}

TEST(Parse, BadSizesAreRefusedWithOptionAndValue) {
  for (const char* text : {"", "K", "-1", "1.5K", "8 ", " 8", "8KiB", "8T", "0x10", "18446744073709551616",
                           "18014398509481985K", "17179869184G"}) {
    const std::string what = refusal([&] { parse_size("--sizes", text); });
    EXPECT_NE(what.find(std::string("--sizes '") + text + "'"), std::string::npos) << text << ": " << what;
  }
  EXPECT_EQ(parse_size("-b", "17179869183G"), std::uint64_t{17179869183} << 30);
}

TEST(Parse, WholeNumbersAreBounded) {
  EXPECT_EQ(parse_whole("-n", "1", 1, 8), 1U);
  EXPECT_EQ(parse_whole("-n", "8", 1, 8), 8U);
  for (const char* text : {"0", "9", "-1", "", "3x", "1.0"}) {
    EXPECT_NE(refusal([&] { parse_whole("-n", text, 1, 8); }).find("from 1 to 8"), std::string::npos) << text;
  }
}

TEST(Parse, SecondsUseAPointAndAreNotNegative) {
  EXPECT_EQ(parse_seconds("--timeout", "0.5"), 0.5);
  EXPECT_EQ(parse_seconds("--timeout", "0"), 0.0);
  for (const char* text : {"-1", "abc", "0,5", "", "nan", "inf"}) {
    EXPECT_NE(refusal([&] { parse_seconds("--timeout", text); }), "") << text;
  }
}

TEST(Parse, ListsHaveNoEmptyParts) {
  EXPECT_EQ(split_list("-d", "a,b"), (std::vector<std::string_view>{"a", "b"}));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_NE(refusal([&] { split_list("-d", text); }), "") << text;
  }
}

TEST(Parse, UnknownNamesListTheValidOnes) {
  const std::string what = refusal([] { parse_choice("--proto", "LL129", {"LL", "LL128"}); });
  EXPECT_EQ(what, "--proto 'LL129': one of LL, LL128");
  EXPECT_NE(refusal([] { parse_dtypes("-d", "float31"); }).find("bfloat16"), std::string::npos);
  EXPECT_NE(refusal([] { parse_reduce_ops("-o", "mean"); }).find("avg"), std::string::npos);
  EXPECT_NE(refusal([] { parse_dtypes("-d", "int8,all"); }), "");
}

TEST(Parse, TypesAndOperationsByName) {
  EXPECT_EQ(parse_dtypes("-d", "float,half,double"),
            (std::vector<DType>{DType::kFloat32, DType::kFloat16, DType::kFloat64}));
  EXPECT_EQ(parse_dtypes("-d", "all").size(), static_cast<std::size_t>(kDTypeCount));
  for (int i = 0; i < kDTypeCount; ++i) {
    EXPECT_EQ(parse_dtypes("-d", dtype_name(static_cast<DType>(i))), std::vector<DType>{static_cast<DType>(i)});
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    EXPECT_EQ(parse_reduce_ops("-o", reduce_op_name(static_cast<ReduceOp>(i))),
              std::vector<ReduceOp>{static_cast<ReduceOp>(i)});
  }
}

TEST(PerfSizes, TheEndIsAlwaysMeasured) {
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(sweep_sizes(8, 64, 2, 0), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sweep_sizes(8, 100, 4, 0), (Sizes{8, 32, 100}));
  EXPECT_EQ(sweep_sizes(8, 8, 4, 0), (Sizes{8}));
  EXPECT_EQ(sweep_sizes(10, 35, 0, 10), (Sizes{10, 20, 30, 35}));
  EXPECT_EQ(sweep_sizes(10, 30, 0, 10), (Sizes{10, 20, 30}));
  const std::uint64_t largest = ~std::uint64_t{0};
  EXPECT_EQ(sweep_sizes(largest - 1, largest, 2, 0), (Sizes{largest - 1, largest}));  // does not wrap
  EXPECT_EQ(sweep_sizes(largest / 2, largest, 0, largest / 2), (Sizes{largest / 2, largest - 1, largest}));
}

TEST(PerfSizes, SweepsThatMakeNoSenseAreRefused) {
  EXPECT_NE(refusal([] { sweep_sizes(0, 8, 2, 0); }), "");
  EXPECT_NE(refusal([] { sweep_sizes(16, 8, 2, 0); }), "");
  EXPECT_NE(refusal([] { sweep_sizes(8, 16, 1, 0); }), "");
  EXPECT_NE(refusal([] { sweep_sizes(1, std::uint64_t{1} << 40, 0, 1); }), "");
}

TEST(PerfSizes, AnEndBelowOneElementNamesTheType) {
  EXPECT_EQ(refusal([] { refuse_end_below_element({1, 4}, {DType::kFloat32, DType::kInt8}); }), "");
  const std::string what = refusal([] { refuse_end_below_element({1, 4}, {DType::kFloat32, DType::kInt64}); });
  EXPECT_NE(what.find("int64"), std::string::npos) << what;
  EXPECT_NE(what.find("end size 4"), std::string::npos) << what;
}

}  // namespace
}  // namespace ringbell::tools
