// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of RINGBELL_* variables: every type's limits, texts of refusals, unknown names.
#include "host/env.hpp"

#include <gtest/gtest.h>

#include "device/ringbell_error.hpp"

namespace ringbell::host {
namespace {

Env env_of(const char* name, const char* value) { return Env(EnvMap{{name, value}}); }

template <class Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    return error.what();
  }
  return "(accepted)";
}

TEST(EnvTest, RowsStandAtTheirOwnNumber) {
  ASSERT_EQ(env_table().size(), static_cast<std::size_t>(kEnvVarCount));
  for (std::size_t i = 0; i < env_table().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(env_table()[i].id), i);
    EXPECT_TRUE(std::string(env_table()[i].name).starts_with("RINGBELL_")) << i;
    EXPECT_STRNE(env_table()[i].help, "");
  }
}

TEST(EnvTest, DefaultsThatAreValuesPassTheirOwnRow) {
  for (const EnvRow& row : env_table()) {
    if (row.default_text[0] == '(') continue;
    EXPECT_NO_THROW(env_of(row.name, row.default_text).check_all()) << row.name;
  }
}

TEST(EnvTest, UnsetIsNothing) {
  const Env env{EnvMap{}};
  EXPECT_FALSE(env.number(EnvVar::kTimeoutS).has_value());
  EXPECT_FALSE(env.integer(EnvVar::kRank).has_value());
  EXPECT_FALSE(env.flag(EnvVar::kResident).has_value());
  EXPECT_FALSE(env.text(EnvVar::kProto).has_value());
  EXPECT_FALSE(env.has(EnvVar::kProto));
}

TEST(EnvTest, TimeoutsTakeZeroAndFractionsAndRefuseNegativesAndWords) {
  EXPECT_EQ(env_of("RINGBELL_TIMEOUT_S", "0").number(EnvVar::kTimeoutS), 0.0);
  EXPECT_EQ(env_of("RINGBELL_TIMEOUT_S", "0.5").number(EnvVar::kTimeoutS), 0.5);
  for (const char* bad : {"-1", "-0", "abc", "", " 1", "1 ", "1s", "nan", "inf", "0,5", "1e10"}) {
    const std::string text = refusal([&] { (void)env_of("RINGBELL_TIMEOUT_S", bad).number(EnvVar::kTimeoutS); });
    EXPECT_NE(text.find("RINGBELL_TIMEOUT_S"), std::string::npos) << text;
    EXPECT_NE(text.find("a number from 0 to"), std::string::npos) << text;
    EXPECT_NE(text.find(*bad == 0 ? "empty" : bad), std::string::npos) << text;
  }
}

TEST(EnvTest, ChoicesAreExactAndTheRefusalListsThem) {
  EXPECT_EQ(env_of("RINGBELL_PROTO", "LL128").text(EnvVar::kProto), "LL128");
  for (const char* bad : {"LL129", " ll", "ll", "^LL128", "", "LL|LL128", "LL,"}) {
    const std::string text = refusal([&] { (void)env_of("RINGBELL_PROTO", bad).text(EnvVar::kProto); });
    EXPECT_NE(text.find("one of LL, LL128, Simple, auto"), std::string::npos) << text;
  }
}

TEST(EnvTest, QueueDepthIsAPowerOfTwoInRange) {
  for (const char* good : {"2", "64", "4096"})
    EXPECT_TRUE(env_of("RINGBELL_QUEUE_DEPTH", good).integer(EnvVar::kQueueDepth));
  for (const char* bad : {"0", "1", "3", "8192", "-4", "0x10", "99999999999999999999"}) {
    EXPECT_NE(
        refusal([&] { (void)env_of("RINGBELL_QUEUE_DEPTH", bad).integer(EnvVar::kQueueDepth); }).find("a power of two"),
        std::string::npos)
        << bad;
  }
}

TEST(EnvTest, FlagsAndSessionsAndScale) {
  EXPECT_EQ(env_of("RINGBELL_RESIDENT", "0").flag(EnvVar::kResident), false);
  EXPECT_NE(refusal([] { (void)env_of("RINGBELL_RESIDENT", "yes").flag(EnvVar::kResident); }).find("0 or 1"),
            std::string::npos);
  EXPECT_EQ(env_of("RINGBELL_SESSION", "00112233aabbCCDD").text(EnvVar::kSession), "00112233aabbCCDD");
  for (const char* bad : {"1234567", "../../etc/passwd", "0011223g"}) {
    EXPECT_NE(refusal([&] { (void)env_of("RINGBELL_SESSION", bad).text(EnvVar::kSession); }).find("hexadecimal"),
              std::string::npos);
  }
  EXPECT_NE(refusal([] { (void)env_of("RINGBELL_TIME_SCALE", "0.5").number(EnvVar::kTimeScale); }).find("from 1"),
            std::string::npos);
}

TEST(EnvTest, CheckAllFindsTheOneBadValue) {
  EXPECT_NO_THROW(Env(EnvMap{{"RINGBELL_ALGO", "ring"}, {"OTHER", ""}}).check_all());
  EXPECT_NE(refusal([] {
              Env(EnvMap{{"RINGBELL_ALGO", "ring"}, {"RINGBELL_LOG", "loud"}}).check_all();
            }).find("RINGBELL_LOG='loud'"),
            std::string::npos);
}

TEST(EnvTest, UnknownVariablesAreNamedWithTheClosestKnownOne) {
  const Env env(EnvMap{{"RINGBELL_PROTOCOL", "LL"},
                       {"RINGBELL_ZZZZZZZZZZZZ", "1"},
                       {"RINGBELL_RANK", "0"},
                       {"RINGBELL_TEST_DIR", "x"},
                       {"RINGBELLX", "y"},
                       {"PATH", "/"}});
  const auto lines = env.unknown_variables();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("RINGBELL_PROTOCOL"), std::string::npos);
  EXPECT_NE(lines[0].find("did you mean RINGBELL_PROTO?"), std::string::npos);
  EXPECT_EQ(lines[1].find("did you mean"), std::string::npos);
}

TEST(EnvTest, TheRenderedTableHasEveryNameAndTheSetValuesBesideWhatIsAllowed) {
  const std::string text = render_env_table(env_of("RINGBELL_LOG", "debug"));
  const auto line_of = [&](const std::string& name) {
    const std::size_t begin = text.find(name + " ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const std::size_t column = text.find("value");
  EXPECT_EQ(line_of("RINGBELL_LOG").find("'debug'"), column) << text;
  EXPECT_EQ(line_of("RINGBELL_LOG").find("one of error, warn, info, debug"), text.find("allowed")) << text;
  EXPECT_EQ(line_of("RINGBELL_PROTO").find("- "), column) << text;
  for (const EnvRow& row : env_table()) EXPECT_NE(text.find(row.name), std::string::npos) << row.name;
}

TEST(EnvTest, TheProcessEnvironmentIsReadWhole) {
  ASSERT_EQ(setenv("RINGBELL_TEST_VALUE", "a=b", 1), 0);
  EXPECT_EQ(Env::of_process().raw("RINGBELL_TEST_VALUE"), "a=b");
}

}  // namespace
}  // namespace ringbell::host
