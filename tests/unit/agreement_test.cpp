// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Every agreed field is compared, and a difference names ranks, field, values and remedy.
#include "runtime/agreement.hpp"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "device/ringbell_error.hpp"
#include "host/unique_id.hpp"

namespace ringbell {
namespace {

// Rank 0's view of a group of three: cards are written as given.
class AgreementTest : public testing::Test {
 protected:
  AgreementTest() {
    const UniqueId id = host::unique_id_create();
    const host::SegmentGeometry geometry{4096, 4096};
    const auto open = [&](int rank) {
      return std::make_unique<host::Segment>(
          host::Segment::create_or_open(id, rank, 3, geometry, host::Deadline::after_seconds(20)));
    };
    for (int rank = 0; rank < 3; ++rank) segments_[rank] = open(rank);
  }
  void publish(int rank, const Agreement& agreement) { publish_agreement(*segments_[rank], agreement); }
  static Agreement usual() {
    Settings settings;
    settings.slot_bytes = 1920;
    settings.timeout_ns = 30'000'000'000;
    return make_agreement(settings, 8, 1, true);
  }
  std::string difference(const Agreement& theirs, int rank = 2) {
    for (int r = 0; r < 3; ++r) publish(r, r == rank ? theirs : usual());
    try {
      check_agreement(*segments_[0], usual());
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
      return error.what();
    }
    return "(agreed)";
  }

  std::unique_ptr<host::Segment> segments_[3];
};

TEST_F(AgreementTest, EqualCardsAgreeAndOneRankWithoutTheLinkTakesLL128FromAll) {
  for (int rank = 0; rank < 3; ++rank) publish(rank, usual());
  EXPECT_TRUE(check_agreement(*segments_[0], usual()));
  Agreement weak = usual();
  weak.ll128_link = 0;
  publish(2, weak);
  EXPECT_FALSE(check_agreement(*segments_[0], usual()));
  EXPECT_FALSE(check_agreement(*segments_[2], weak));
}

TEST_F(AgreementTest, EachFieldThatDiffersIsNamedWithBothValues) {
  constexpr std::uint64_t Agreement::*kFields[] = {
      &Agreement::wire_version, &Agreement::slot_bytes,   &Agreement::slots,       &Agreement::channels,
      &Agreement::algorithm,    &Agreement::protocol,     &Agreement::first_epoch, &Agreement::queue_depth,
      &Agreement::timeout_ms,   &Agreement::idle_park_us, &Agreement::lease_us,    &Agreement::allow_shared_device};
  for (const auto field : kFields) {
    Agreement other = usual();
    other.*field += 4242;
    const std::string text = difference(other);
    for (const std::string& part : {std::string("ranks disagree on"), "rank 0 has " + std::to_string(usual().*field),
                                    "rank 2 has " + std::to_string(other.*field)}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  // Every word of the struct but the permission is compared.
  EXPECT_EQ(sizeof(Agreement), sizeof(Agreement::version) + (std::size(kFields) + 1) * sizeof(std::uint64_t));
}

TEST_F(AgreementTest, AnotherVersionIsNamed) {
  Agreement other = usual();
  std::strncpy(other.version, "9.9.9", sizeof other.version - 1);
  const std::string text = difference(other, 1);
  EXPECT_NE(text.find("9.9.9"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringbell
