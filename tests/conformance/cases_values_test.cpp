// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-test: timeout=180 args=--gtest_filter=-*EveryTypeAndProtocol*
// ringbell-test: name=tails label=ci timeout=900 sanitize=none args=--gtest_filter=*EveryTypeAndProtocol*
//
// Public fault reports about values: rounding, tails, odd addresses, aliasing, payload that looks like a flag.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "device/ring/schedule.hpp"
#include "tests/support/all_reduce_cases.hpp"
#include "tests/support/buffers.hpp"
#include "tests/support/ranks.hpp"

namespace ringbell::test {
namespace {

constexpr DType kTailTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                                DType::kInt32,   DType::kInt64,   DType::kFloat64};

Config small_slots() {
  Config config = cpu_config();
  config.slot_bytes = 1920;
  return config;
}

// ---- C01 ------------------------------------------------------------------------------------------------------------

// Exact: 263. Rounding once gives 264; rounding per hop depends on the chunk's first rank, and stays in the bound.
TEST(CaseC01, BFloat16SumsRoundPerHopInsideTheDocumentedBoundOnEveryProtocol) {
  constexpr int kWorld = 8;
  constexpr std::uint64_t kCount = 8192;
  constexpr float kByFirstRank[kWorld] = {256, 264, 264, 260, 260, 260, 260, 256};
  const auto bf16 = [](float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); };
  std::vector<std::vector<std::uint16_t>> inputs(kWorld, std::vector<std::uint16_t>(kCount, bf16(1.0f)));
  inputs[0].assign(kCount, bf16(256.0f));
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  const PlanBasis basis = plan_basis(kWorld, DeviceKind::kCpu, 0);
  for (Protocol protocol : kProtocols) {
    const auto outputs = run_ranks(kWorld, cpu_config(), [&](Communicator& comm) {
      std::vector<std::uint16_t> out(kCount, 0x7ff5);
      CallOptions options;
      options.protocol = protocol;
      options.algorithm = Algorithm::kRing;
      const Ticket ticket = comm.all_reduce(pointers[static_cast<std::size_t>(comm.rank())], out.data(), kCount,
                                            DType::kBFloat16, ReduceOp::kSum, options);
      EXPECT_EQ(wait_ok(comm, ticket), "");
      return out;
    });
    const std::uint64_t chunk = plan_call(basis, kCount * 2, Algorithm::kRing, protocol).chunk_bytes;
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto& out = outputs[static_cast<std::size_t>(rank)];
      ASSERT_EQ(out, outputs[0]) << protocol_name(protocol) << " rank " << rank;
      EXPECT_EQ(count_outside_bound(out.data(), pointers, kCount, DType::kBFloat16, ReduceOp::kSum), 0u);
      for (std::uint64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(out[i], bf16(kByFirstRank[first_rank(basis, kCount * 2, chunk, i * 2)])) << i;
      }
    }
    std::vector<std::uint16_t> spoilt(kCount, bf16(284.0f));
    EXPECT_EQ(count_outside_bound(spoilt.data(), pointers, kCount, DType::kBFloat16, ReduceOp::kSum), kCount);
  }
}

// 256 + 7 x 1 = 263 in float32, and 264 is the nearest bfloat16: folded one by one it would stay 256.
TEST(CaseC01, BFloat16SumsOfOneShotRoundOnceOnEveryProtocol) {
  constexpr int kWorld = 8;
  constexpr std::uint64_t kCount = 4099;
  const auto bf16 = [](float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); };
  std::vector<std::vector<std::uint16_t>> inputs(kWorld, std::vector<std::uint16_t>(kCount, bf16(1.0f)));
  inputs[0].assign(kCount, bf16(256.0f));
  for (Protocol protocol : kProtocols) {
    const auto outputs = run_ranks(kWorld, cpu_config(), [&](Communicator& comm) {
      std::vector<std::uint16_t> out(kCount, 0x7ff5);
      CallOptions options;
      options.protocol = protocol;
      options.algorithm = Algorithm::kOneShot;
      const Ticket ticket = comm.all_reduce(inputs[static_cast<std::size_t>(comm.rank())].data(), out.data(), kCount,
                                            DType::kBFloat16, ReduceOp::kSum, options);
      EXPECT_EQ(wait_ok(comm, ticket), "");
      return out;
    });
    for (const auto& out : outputs) {
      EXPECT_EQ(out, std::vector<std::uint16_t>(kCount, bf16(264.0f))) << protocol_name(protocol);
    }
  }
}

// ---- C02 ------------------------------------------------------------------------------------------------------------

class CaseC02 : public testing::TestWithParam<int> {};

TEST_P(CaseC02, CountsTo2050AndAroundPowersOfTwoAreWholeAndEqualOnAllRanks) {
  std::vector<AllReduceCase> cases;
  const auto add = [&](std::uint64_t count) {
    AllReduceCase c{.count = count};
    c.dtype = kTailTypes[cases.size() % std::size(kTailTypes)];
    c.op = kOps[cases.size() % std::size(kOps)];
    c.protocol = kProtocols[cases.size() % 3];
    c.algorithm = kAlgorithms[cases.size() / 3 % 2];
    cases.push_back(c);
  };
  // More ranks than cores: every seventh of the longer ones here, the rest in the entry for CI.
  for (std::uint64_t count = 1; count <= 2050; count += GetParam() >= 5 && count > 130 ? 7 : 1) add(count);
  for (std::uint64_t power = 4096; power <= 32768; power *= 2) {
    for (std::uint64_t count : {power - 1, power, power + 1}) add(count);
  }
  EXPECT_EQ(suite_failure(cases, run_on_threads(GetParam(), small_slots(), cases, 2)), "");
}

TEST_P(CaseC02, EveryTypeAndProtocolAtEveryCount) {
  if (!asked_for("EveryType")) GTEST_SKIP() << "takes minutes: runs by name";
  for (DType dtype : kTailTypes) {
    for (Protocol protocol : kProtocols) {
      std::vector<AllReduceCase> cases;
      for (std::uint64_t count = 1; count <= 2050; ++count) cases.push_back({count, dtype, ReduceOp::kSum, protocol});
      for (std::uint64_t power = 4096; power <= (1u << 22); power *= 2) {
        // The largest in one type and protocol: the reference is slow.
        if (power > (1u << 17) && (dtype != DType::kInt32 || protocol != Protocol::kSimple)) break;
        for (std::uint64_t count : {power - 1, power, power + 1})
          cases.push_back({count, dtype, ReduceOp::kSum, protocol});
      }
      ASSERT_EQ(suite_failure(cases, run_on_threads(GetParam(), cpu_config(), cases, 3, 600)), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CaseC02, testing::ValuesIn(kWorlds));

// ---- C03 ------------------------------------------------------------------------------------------------------------

// The sanitizer build checks the alignment of every access on the way.
TEST(CaseC03, OddOffsetsOfInAndOutGiveTheRightResult) {
  for (int world : {2, 3}) {
    std::vector<AllReduceCase> cases;
    for (std::uint64_t count : {1u, 7u, 9u, 17u, 1023u}) {
      for (Protocol protocol : kProtocols) {
        for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
          for (unsigned in = 2; in <= 14; in += 2) {
            for (unsigned out = 2; out <= 14; out += 2) {
              if (count == 1023 && (in + out) % 8 != 0) continue;
              cases.push_back({count, dtype, ReduceOp::kSum, protocol, in, out});
            }
          }
        }
        for (DType dtype : {DType::kInt8, DType::kFloat32, DType::kFloat64}) {
          cases.push_back({count, dtype, ReduceOp::kSum, protocol, 1, 1});
          cases.push_back({count, dtype, ReduceOp::kSum, protocol, 1, 3, Placement::kMixed});
        }
      }
    }
    EXPECT_EQ(suite_failure(cases, run_on_threads(world, cpu_config(), cases, 3)), "") << world;
  }
}

// ---- C04 ------------------------------------------------------------------------------------------------------------

TEST(CaseC04, InPlaceEqualsOutOfPlaceBitForBitAndRanksMayMix) {
  for (int world : {2, 3, 4, 8}) {
    std::vector<AllReduceCase> cases;
    for (std::uint64_t count : {1u, 5u, 1000u, 3001u, 20011u}) {
      for (Protocol protocol : kProtocols) {
        for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          for (Placement placement : {Placement::kOutOfPlace, Placement::kInPlace, Placement::kMixed}) {
            AllReduceCase c{.count = count, .dtype = dtype, .protocol = protocol, .placement = placement};
            c.data = 1000 * count + static_cast<std::uint64_t>(dtype);
            cases.push_back(c);
          }
        }
      }
    }
    const std::vector<SuiteResult> results = run_on_threads(world, small_slots(), cases, 4);
    ASSERT_EQ(suite_failure(cases, results), "") << world;
    for (std::size_t i = 0; i < cases.size(); i += 3) {
      EXPECT_EQ(results[0].hashes[i + 1], results[0].hashes[i]) << case_text(cases[i + 1]);
      EXPECT_EQ(results[0].hashes[i + 2], results[0].hashes[i]) << case_text(cases[i + 2]);
    }
  }
}

TEST(CaseC04, PartialOverlapIsRefusedBeforeAnythingIsQueued) {
  const auto texts = run_ranks(2, cpu_config(), [&](Communicator& comm) -> std::string {
    std::vector<float> memory(101, 1.0f);
    for (const auto& [in, out] : {std::pair{0, 1}, std::pair{1, 0}, std::pair{0, 99}}) {
      const Ticket refused = comm.all_reduce(&memory[static_cast<std::size_t>(in)],
                                             &memory[static_cast<std::size_t>(out)], 100, DType::kFloat32);
      if (refused.status != Status::kInvalidArgument) return "accepted";
      if (comm.last_error().find("overlap") == std::string::npos) return comm.last_error();
      if (comm.wait(refused) != Status::kInvalidArgument) return "the refused ticket does not answer its status";
    }
    // Touching is not overlapping, and nothing was queued: both ranks' first call is this one.
    const Ticket ticket = comm.all_reduce(memory.data(), memory.data() + 50, 50, DType::kFloat32);
    if (ticket.seq != 0) return "something was queued";
    if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
    return memory[99] == 2.0f && memory[49] == 1.0f ? "" : "wrong result";
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

// ---- C07 ------------------------------------------------------------------------------------------------------------

// Payload that equals the flags of the calls around it. Each rank sends 2 (world - 1) slots a round on each protocol,
// so the flags in use are known; the maximum of equal inputs puts just these words on the wire.
TEST(CaseC07, WordsEqualToFlagsZerosAndNanPayloadsAreData) {
  constexpr int kCallsPerCount = 40;
  constexpr std::uint64_t kSizes[] = {1, 2, 3, 4, 15, 16, 29, 30, 31, 60, 61, 255, 256, 1024, 4096, 16384};
  for (int world : {2, 3, 4}) {
    const auto texts = run_ranks(world, cpu_config(), [&](Communicator& comm) -> std::string {
      std::vector<std::uint32_t> in;
      std::vector<std::uint32_t> out;
      for (Protocol protocol : kProtocols) {
        std::uint64_t slots = 0;  // most that this protocol can have used so far
        for (std::uint64_t count : kSizes) {
          in.resize(count);
          out.resize(count);
          for (int call = 0; call < kCallsPerCount; ++call) {
            const std::uint32_t around = static_cast<std::uint32_t>(slots > 24 ? slots - 24 : 0);
            const std::uint32_t fixed[] = {0, 0x80000000u, 0xffffffffu, 0x7fc00001u, 0x7f800001u, 0xffc12345u};
            for (std::uint64_t i = 0; i < count; ++i) {
              const std::uint64_t pick = i + static_cast<std::uint64_t>(call);
              // 64-bit flags have a zero high half: even words are flags, odd ones zero, in half of the calls.
              in[i] = call % 4 == 0   ? fixed[pick % 6]
                      : call % 2 == 0 ? (i % 2 == 0 ? around + static_cast<std::uint32_t>(pick % 48) : 0)
                                      : around + static_cast<std::uint32_t>(pick % 48);
            }
            std::fill(out.begin(), out.end(), 0x7ff57ff5u);
            CallOptions options;
            options.protocol = protocol;
            const Ticket ticket =
                comm.all_reduce(in.data(), out.data(), count, DType::kUInt32, ReduceOp::kMax, options);
            if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
            if (out != in)
              return std::string(protocol_name(protocol)) + " count " + std::to_string(count) + " call " +
                     std::to_string(call);
            // One send fewer for an empty chunk; with few elements most are.
            const std::uint64_t chunks =
                std::min<std::uint64_t>((count * 4 + 15) / 16, static_cast<std::uint64_t>(comm.world()));
            slots +=
                2 * chunks * static_cast<std::uint64_t>(comm.world() - 1) / static_cast<std::uint64_t>(comm.world());
          }
        }
      }
      return "";
    });
    for (const std::string& text : texts) EXPECT_EQ(text, "") << world;
  }
}

TEST(CaseC07, AllZeroAndAllMinusZeroTensorsArriveAsTheyAre) {
  const auto texts = run_ranks(3, cpu_config(), [&](Communicator& comm) -> std::string {
    for (Protocol protocol : kProtocols) {
      for (std::uint64_t count : {1u, 16u, 1000u, 16384u}) {
        for (float zero : {0.0f, -0.0f}) {
          std::vector<float> in(count, zero);
          std::vector<float> out(count, std::numeric_limits<float>::quiet_NaN());
          CallOptions options;
          options.protocol = protocol;
          const Ticket ticket = comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, ReduceOp::kSum, options);
          if (std::string text = wait_ok(comm, ticket); !text.empty()) return text;
          if (std::memcmp(in.data(), out.data(), count * 4) != 0) return "not the same zeros";
        }
      }
    }
    return "";
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace ringbell::test
