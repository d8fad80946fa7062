// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/settings.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "device/layout/window.hpp"
#include "host/error.hpp"
#include "host/executor.hpp"

namespace ringbell {
namespace {

using host::EnvVar;

constexpr double kLongestSeconds = 1e9;
constexpr std::int64_t kLongestMicroseconds = 1'000'000'000;

[[noreturn]] void bad_field(const std::string& field, const std::string& value, const std::string& allowed) {
  host::throw_error(Status::kInvalidArgument, "Config::" + field + " is " + value, allowed);
}

// A config field at its default falls back to the variable, then to the built-in value.
double seconds(double field, const char* name, const host::Env& env, EnvVar variable, double fallback) {
  if (field == -1) return env.number(variable).value_or(fallback);
  if (!(field >= 0 && field <= kLongestSeconds)) {
    bad_field(name, std::to_string(field), "give seconds >= 0, at most 1e9 (0 waits for ever), or -1 for the default");
  }
  return field;
}

std::uint64_t microseconds(std::int64_t field, const char* name, const host::Env& env, EnvVar variable,
                           std::int64_t fallback) {
  if (field < -1 || field > kLongestMicroseconds) {
    bad_field(name, std::to_string(field), "give microseconds >= 0, at most 1000000000, or -1 for the default");
  }
  if (field != -1) return static_cast<std::uint64_t>(field) * 1000;
  return static_cast<std::uint64_t>(env.number(variable).value_or(static_cast<double>(fallback)) * 1000);
}

// Scaled times may leave the clock's range: as good as for ever, but not 0.
std::uint64_t to_ns(double seconds_wanted) { return static_cast<std::uint64_t>(std::min(seconds_wanted * 1e9, 9e18)); }

DeviceKind wanted_device(const Config& config, const host::Env& env) {
  if (config.device > DeviceKind::kCuda) {
    bad_field("device", std::to_string(static_cast<int>(config.device)), "use kAuto, kCpu or kCuda");
  }
  if (config.device != DeviceKind::kAuto) return config.device;
  const std::string text = env.text(EnvVar::kDevice).value_or("auto");
  return text == "cpu" ? DeviceKind::kCpu : text == "cuda" ? DeviceKind::kCuda : DeviceKind::kAuto;
}

void resolve_device(const Config& config, const host::Env& env, int local_rank, Settings& settings) {
  settings.device = wanted_device(config, env);
  if (settings.device == DeviceKind::kCpu) return;
  std::string why;
  const int devices = host::cuda_device_count(&why);
  if (devices == 0) {
    if (settings.device == DeviceKind::kCuda) {
      host::throw_error(Status::kUnsupported, "device cuda was asked for, but " + why,
                        "use RINGBELL_DEVICE=cpu or Config::device = kCpu to run on CPU threads");
    }
    settings.device = DeviceKind::kCpu;
    settings.device_note = why;
    return;
  }
  settings.device = DeviceKind::kCuda;
  settings.device_ordinal = config.device_ordinal >= 0 ? config.device_ordinal : local_rank % devices;
  if (settings.device_ordinal >= devices) {
    bad_field("device_ordinal", std::to_string(config.device_ordinal),
              "there are " + std::to_string(devices) + " visible CUDA devices");
  }
}

Algorithm algorithm_of(const std::string& text) {
  return text == "ring" ? Algorithm::kRing : text == "oneshot" ? Algorithm::kOneShot : Algorithm::kAuto;
}

Protocol protocol_of(const std::string& text) {
  return text == "LL"       ? Protocol::kLL
         : text == "LL128"  ? Protocol::kLL128
         : text == "Simple" ? Protocol::kSimple
                            : Protocol::kAuto;
}

}  // namespace

Settings resolve_settings(const Config& config, const host::Env& env, int local_rank) {
  env.check_all();
  Settings s;
  resolve_device(config, env, local_rank, s);
  s.allow_shared_device = config.allow_shared_device || env.flag(EnvVar::kAllowSharedDevice).value_or(false);
  s.resident = env.flag(EnvVar::kResident).value_or(true);

  s.queue_depth = config.queue_depth != 0 ? config.queue_depth
                                          : static_cast<std::uint32_t>(env.integer(EnvVar::kQueueDepth).value_or(64));
  if (!std::has_single_bit(s.queue_depth) || s.queue_depth < 2 || s.queue_depth > 4096) {
    bad_field("queue_depth", std::to_string(s.queue_depth), "give a power of two from 2 to 4096");
  }
  s.slot_bytes = config.slot_bytes != 0
                     ? config.slot_bytes
                     : static_cast<std::uint32_t>(env.integer(EnvVar::kSlotBytes).value_or(device::kDefaultSlotBytes));
  if (s.slot_bytes % device::kSlotGranuleBytes != 0 || s.slot_bytes > (8u << 20)) {
    bad_field("slot_bytes", std::to_string(s.slot_bytes), "give a multiple of 1920 up to 8388480");
  }
  const double scale = env.number(EnvVar::kTimeScale).value_or(1);
  s.timeout_ns = to_ns(seconds(config.timeout_s, "timeout_s", env, EnvVar::kTimeoutS, 30) * scale);
  s.init_timeout_s = seconds(config.init_timeout_s, "init_timeout_s", env, EnvVar::kInitTimeoutS, 120) * scale;
  s.idle_park_ns = microseconds(config.idle_park_us, "idle_park_us", env, EnvVar::kIdleParkUs, 100);
  s.lease_ns = microseconds(config.lease_us, "lease_us", env, EnvVar::kLeaseUs, 10000);

  s.algorithm = config.algorithm;
  if (s.algorithm == Algorithm::kAuto) s.algorithm = algorithm_of(env.text(EnvVar::kAlgo).value_or("auto"));
  s.protocol = config.protocol;
  if (s.protocol == Protocol::kAuto) s.protocol = protocol_of(env.text(EnvVar::kProto).value_or("auto"));
  if (static_cast<int>(s.algorithm) >= kAlgorithmCount)
    bad_field("algorithm", std::to_string(static_cast<int>(s.algorithm)), "use kAuto, kRing or kOneShot");
  if (static_cast<int>(s.protocol) >= kProtocolCount)
    bad_field("protocol", std::to_string(static_cast<int>(s.protocol)), "use kAuto, kLL, kLL128 or kSimple");

  s.check_pointers = config.check_pointers;
  if (s.check_pointers > CheckPointers::kOff) {
    bad_field("check_pointers", std::to_string(static_cast<int>(s.check_pointers)), "use kFirst, kAlways or kOff");
  }
  if (const auto text = env.text(EnvVar::kCheckPointers); text && config.check_pointers == CheckPointers::kFirst) {
    s.check_pointers = *text == "always" ? CheckPointers::kAlways
                       : *text == "off"  ? CheckPointers::kOff
                                         : CheckPointers::kFirst;
  }
  s.first_epoch = config.first_epoch;
  s.fault = env.text(EnvVar::kFault).value_or("");
  return s;
}

}  // namespace ringbell
