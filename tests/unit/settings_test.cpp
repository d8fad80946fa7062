// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Config and environment into settings: who wins, units, limits.
#include "runtime/settings.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "device/layout/window.hpp"
#include "device/ringbell_error.hpp"

namespace ringbell {
namespace {

Config on_cpu() {
  Config config;
  config.device = DeviceKind::kCpu;
  return config;
}
Settings resolve(const Config& config, host::EnvMap variables = {}) {
  return resolve_settings(config, host::Env(std::move(variables)), 0);
}
std::string refusal(const Config& config, host::EnvMap variables = {}) {
  try {
    (void)resolve(config, std::move(variables));
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    return error.what();
  }
  return "(accepted)";
}

TEST(Settings, DefaultsAreThoseOfTheDocumentation) {
  const Settings s = resolve(on_cpu());
  EXPECT_EQ(s.device, DeviceKind::kCpu);
  EXPECT_EQ(s.queue_depth, 64u);
  EXPECT_EQ(s.slot_bytes, 61440u);
  EXPECT_EQ(s.timeout_ns, 30'000'000'000u);
  EXPECT_EQ(s.init_timeout_s, 120);
  EXPECT_EQ(s.idle_park_ns, 100'000u);
  EXPECT_EQ(s.lease_ns, 10'000'000u);
  EXPECT_EQ(s.protocol, Protocol::kAuto);
  EXPECT_EQ(s.algorithm, Algorithm::kAuto);
  EXPECT_EQ(s.check_pointers, CheckPointers::kFirst);
  EXPECT_FALSE(s.allow_shared_device);
  EXPECT_TRUE(s.resident);
}

TEST(Settings, AVariableFillsADefaultFieldAndAFieldWinsOverIt) {
  const host::EnvMap variables{
      {"RINGBELL_QUEUE_DEPTH", "8"},      {"RINGBELL_SLOT_BYTES", "1920"},  {"RINGBELL_TIMEOUT_S", "0.5"},
      {"RINGBELL_INIT_TIMEOUT_S", "7"},   {"RINGBELL_IDLE_PARK_US", "2.5"}, {"RINGBELL_LEASE_US", "3"},
      {"RINGBELL_PROTO", "LL128"},        {"RINGBELL_ALGO", "ring"},        {"RINGBELL_DEVICE", "cpu"},
      {"RINGBELL_CHECK_POINTERS", "off"}, {"RINGBELL_RESIDENT", "0"},       {"RINGBELL_ALLOW_SHARED_DEVICE", "1"}};
  const Settings from_env = resolve({}, variables);
  EXPECT_EQ(from_env.queue_depth, 8u);
  EXPECT_EQ(from_env.slot_bytes, 1920u);
  EXPECT_EQ(from_env.timeout_ns, 500'000'000u);
  EXPECT_EQ(from_env.init_timeout_s, 7);
  EXPECT_EQ(from_env.idle_park_ns, 2'500u);
  EXPECT_EQ(from_env.lease_ns, 3'000u);
  EXPECT_EQ(from_env.protocol, Protocol::kLL128);
  EXPECT_EQ(from_env.algorithm, Algorithm::kRing);
  EXPECT_EQ(from_env.check_pointers, CheckPointers::kOff);
  EXPECT_FALSE(from_env.resident);
  EXPECT_TRUE(from_env.allow_shared_device);

  Config config = on_cpu();
  config.queue_depth = 16;
  config.slot_bytes = 3840;
  config.timeout_s = 0;
  config.init_timeout_s = 1;
  config.idle_park_us = 0;
  config.lease_us = 9;
  config.protocol = Protocol::kSimple;
  config.check_pointers = CheckPointers::kAlways;
  const Settings own = resolve(config, variables);
  EXPECT_EQ(own.queue_depth, 16u);
  EXPECT_EQ(own.slot_bytes, 3840u);
  EXPECT_EQ(own.timeout_ns, 0u) << "for ever";
  EXPECT_EQ(own.init_timeout_s, 1);
  EXPECT_EQ(own.idle_park_ns, 0u);
  EXPECT_EQ(own.lease_ns, 9'000u);
  EXPECT_EQ(own.protocol, Protocol::kSimple);
  EXPECT_EQ(own.check_pointers, CheckPointers::kAlways);
}

TEST(Settings, TheTimeScaleMultipliesTimeOutsAndNeverTurnsThemIntoForEver) {
  EXPECT_EQ(resolve(on_cpu(), {{"RINGBELL_TIME_SCALE", "50"}}).timeout_ns, 1'500'000'000'000u);
  Config config = on_cpu();
  config.timeout_s = 1e9;
  EXPECT_GT(resolve(config, {{"RINGBELL_TIME_SCALE", "1000000"}}).timeout_ns, 1'000'000'000'000'000'000u);
  config.timeout_s = 0;
  EXPECT_EQ(resolve(config, {{"RINGBELL_TIME_SCALE", "50"}}).timeout_ns, 0u);
}

TEST(Settings, FieldsOutOfRangeAreNamed) {
  const auto refused = [](auto set, const char* part) {
    Config config = on_cpu();
    set(config);
    const std::string text = refusal(config);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (std::uint32_t depth : {1u, 3u, 63u, 8192u, 0x80000000u})
    refused([&](Config& c) { c.queue_depth = depth; }, "Config::queue_depth");
  for (std::uint32_t bytes : {1u, 1919u, 1921u, 8390400u})
    refused([&](Config& c) { c.slot_bytes = bytes; }, "Config::slot_bytes");
  for (double s :
       {-2.0, -0.5, 1.1e9, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    refused([&](Config& c) { c.timeout_s = s; }, "Config::timeout_s");
    refused([&](Config& c) { c.init_timeout_s = s; }, "Config::init_timeout_s");
  }
  for (std::int64_t us :
       {std::int64_t{-2}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    refused([&](Config& c) { c.idle_park_us = us; }, "Config::idle_park_us");
    refused([&](Config& c) { c.lease_us = us; }, "Config::lease_us");
  }
  refused([](Config& c) { c.device = static_cast<DeviceKind>(3); }, "Config::device");
}

// One rule for the table of variables and for set-up.
TEST(Settings, SlotBytesOfTheVariableAreWhatAFieldMayBe) {
  for (const std::uint32_t bytes : {0u, 1u, 256u, 1919u, 1920u, 1921u, 3840u, 61440u, 8388480u, 8388608u, 8390400u}) {
    bool taken = true;
    try {
      host::Env(host::EnvMap{{"RINGBELL_SLOT_BYTES", std::to_string(bytes)}}).check_all();
    } catch (const Error& error) {
      taken = false;
      EXPECT_NE(std::string(error.what()).find("a multiple of 1920 from 1920 to 8388480"), std::string::npos)
          << error.what();
    }
    Config config = on_cpu();
    config.slot_bytes = bytes;  // 0 is the default there
    const bool field_taken = bytes != 0 && refusal(config).find("slot_bytes") == std::string::npos;
    EXPECT_EQ(taken, field_taken) << bytes;
  }
  EXPECT_EQ(std::to_string(device::kDefaultSlotBytes), host::env_row(host::EnvVar::kSlotBytes).default_text);
}

TEST(Settings, ABadVariableIsRefusedEvenWhenAFieldHidesIt) {
  Config config = on_cpu();
  config.queue_depth = 8;
  EXPECT_NE(refusal(config, {{"RINGBELL_QUEUE_DEPTH", "7"}}).find("RINGBELL_QUEUE_DEPTH='7'"), std::string::npos);
}

}  // namespace
}  // namespace ringbell
