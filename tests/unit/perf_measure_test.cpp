// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Every library is measured by the same rule: what is called, on which buffers, in which order, and that wrong results
// are found. A world of one rank and a library made up here.
#include "tools/perf_measure.hpp"

#include <cstring>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

namespace ringbell::tools {
namespace {

/// Copies, as an AllReduce of one rank does, and writes down what it was asked for.
class CopyPeer final : public Peer {
 public:
  [[nodiscard]] std::string refusal(DType dtype, ReduceOp /*op*/, std::uint64_t /*count*/) const override {
    return dtype == DType::kBFloat16 ? "no bfloat16" : "";
  }
  [[nodiscard]] bool exact(DType /*dtype*/, ReduceOp op, int /*ranks*/) const override { return op != ReduceOp::kAvg; }
  void prepare(const PeerCall& call) override { prepared.insert(call.out); }
  Status call(const PeerCall& call) noexcept override {
    if (fails) return Status::kSystem;
    EXPECT_EQ(prepared.count(call.out), 1U) << "a call with arguments that were not prepared";
    outs.push_back(call.out);
    if (call.in != call.out) std::memcpy(call.out, call.in, call.count * dtype_bytes(call.dtype));
    if (spoils) *static_cast<unsigned char*>(call.out) ^= 1;
    return Status::kOk;
  }
  [[nodiscard]] ExitError failure(Status /*status*/) const override { return {kExitEnvironment, "it broke"}; }
  [[nodiscard]] PeerPath path() const override { return {"copy", "-", 0, 0}; }

  bool spoils = false;
  bool fails = false;
  std::set<const void*> prepared;
  std::vector<const void*> outs;
};

class PerfMeasure : public testing::Test {
 protected:
  PerfMeasure() {
    options_.iterations = 4;
    options_.warmup = 2;
    options_.sizes = {400};
  }
  Row measure(DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
    const int fd = Meeting::create_place();
    Meeting meeting(fd, 0, 1, 10);
    close(fd);
    const auto buffers = make_cpu_buffers(region_bytes(options_), options_.l2 != L2State::kWarm);
    return Measurement(peer_, *buffers, meeting, options_, nullptr, [this] { ++beats_; }).all_reduce({dtype, op, 100});
  }
  PerfOptions options_;
  CopyPeer peer_;
  int beats_ = 0;
};

TEST_F(PerfMeasure, ACountedTimeForEveryCallAfterTheWarmUp) {
  const Row row = measure();
  for (const auto& measured : {row.out_of_place, row.in_place}) {
    ASSERT_TRUE(measured);
    EXPECT_EQ(measured->samples_us.size(), 4U);
    EXPECT_EQ(measured->round_p50_us.size(), 1U);
    EXPECT_EQ(measured->wrong, 0U);
    EXPECT_EQ(measured->path.algorithm, "copy");
    EXPECT_TRUE(measured->sent_as_expected) << "a library that does not tell is not blamed";
  }
  EXPECT_EQ(peer_.outs.size(), 2U * 6);
  EXPECT_GE(beats_, 12);
}

TEST_F(PerfMeasure, WrongResultsOfALibraryAreCountedUnlessItsRuleIsAnother) {
  peer_.spoils = true;
  EXPECT_EQ(measure().out_of_place->wrong, 6U) << "warm-up calls are checked, too";
  EXPECT_FALSE(measure(DType::kFloat32, ReduceOp::kAvg).out_of_place->wrong);
  options_.check = false;
  EXPECT_FALSE(measure().out_of_place->wrong);
}

TEST_F(PerfMeasure, ARefusalIsARowWithoutTimes) {
  const Row row = measure(DType::kBFloat16);
  EXPECT_EQ(row.refusal, "no bfloat16");
  EXPECT_FALSE(row.out_of_place);
  EXPECT_TRUE(peer_.outs.empty());
}

TEST_F(PerfMeasure, AFailedCallIsTheLibrarysError) {
  peer_.fails = true;
  EXPECT_THROW(measure(), ExitError);
}

TEST_F(PerfMeasure, WarmAndFlushUseOneSetAndColdAnotherForEveryCall) {
  for (const bool check : {true, false}) {
    options_.check = check;
    for (const L2State l2 : {L2State::kWarm, L2State::kFlush, L2State::kCold}) {
      options_.l2 = l2;
      peer_.outs.clear();
      const Row row = measure();
      EXPECT_EQ(row.out_of_place->wrong.value_or(0), 0U);
      const std::set<const void*> different(peer_.outs.begin(), peer_.outs.end());
      // Cold: six calls and the set between them, which the calls that are not counted use.
      EXPECT_EQ(different.size(), l2 == L2State::kCold ? 7U : 1U);
      EXPECT_EQ(peer_.outs.size(), l2 == L2State::kCold ? 2U * 8 : 2U * 6);
    }
  }
}

TEST_F(PerfMeasure, ColdRowsThatDoNotFitTogetherComeInBatches) {
  options_.l2 = L2State::kCold;
  options_.sizes = {std::uint64_t{48} << 20};
  const int fd = Meeting::create_place();
  Meeting meeting(fd, 0, 1, 10);
  close(fd);
  const auto buffers = make_cpu_buffers(region_bytes(options_), true);
  Measurement measurement(peer_, *buffers, meeting, options_);
  const Row row = measurement.all_reduce({DType::kUInt64, ReduceOp::kMax, options_.sizes.front() / 8});
  EXPECT_EQ(row.out_of_place->samples_us.size(), 4U);
  EXPECT_EQ(row.out_of_place->wrong, 0U);
}

TEST(PerfRows, RoundsAddUp) {
  Row row = row_of({DType::kFloat32, ReduceOp::kSum, 4});
  for (const double time : {1.0, 3.0, 2.0}) {
    Row round = row_of({DType::kFloat32, ReduceOp::kSum, 4});
    round.out_of_place.emplace();
    round.out_of_place->samples_us = {time, time};
    round.out_of_place->round_p50_us = {time};
    round.out_of_place->wrong = 1;
    round.out_of_place->sent_as_expected = time != 3.0;
    round.out_of_place->us = summarize(round.out_of_place->samples_us);
    row.add(round);
  }
  EXPECT_EQ(row.out_of_place->round_p50_us, (std::vector<double>{1, 3, 2}));
  EXPECT_EQ(row.out_of_place->us.p50, 2);
  EXPECT_EQ(row.out_of_place->wrong, 3U);
  EXPECT_FALSE(row.out_of_place->sent_as_expected);
  EXPECT_FALSE(row.in_place);
}

}  // namespace
}  // namespace ringbell::tools
