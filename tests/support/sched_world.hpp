// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// A whole group in the explorer: for each rank a worker of a few lanes, an application thread that submits calls,
// checks every output and rewrites its buffers, and, if asked, a service thread that looks after launches. The host's
// side is the product's own (queue/producer.hpp); the worker's is given as a function, so that a test instantiates the
// mutant.
#ifndef RINGBELL_TESTS_SUPPORT_SCHED_WORLD_HPP_
#define RINGBELL_TESTS_SUPPORT_SCHED_WORLD_HPP_

#include <functional>
#include <string>
#include <vector>

#include "device/queue/producer.hpp"
#include "device/worker/context.hpp"
#include "tests/support/group_sched.hpp"
#include "tests/support/group_warps.hpp"

namespace ringbell::test {

using RunWorker = void (*)(const device::WorkerContext&, SchedGroup&, std::uint64_t generation);

/// The product's worker, nothing planted.
void sched_worker(const device::WorkerContext& ctx, SchedGroup& group, std::uint64_t generation);
void warp_worker(const device::WorkerContext& ctx, WarpGroup& group, std::uint64_t generation);

/// One call, the same on every rank unless WorldConfig::change_call says otherwise.
struct Call {
  std::uint64_t count = 0;
  Protocol protocol = Protocol::kLL;
  DType dtype = DType::kUInt64;  // an unsigned integer or float32; the operation is a sum
  std::uint32_t chunk_bytes = 16;
  bool in_place = false;
  bool of_last_output = false;  // input is the last call's output, submitted without waiting for it
  bool after_stream = false;    // the rank's stream writes the input and then makes the command whole
  std::uint8_t offset = 0;      // bytes by which the buffers miss alignment
  std::uint8_t flags = 0;
  Status expected = Status::kOk;
  Algorithm algorithm = Algorithm::kRing;
};

struct WorldConfig {
  unsigned ranks = 2;
  unsigned lanes = 1;
  bool warps = false;                              // WarpGroup: lanes in teams of two, at least two teams
  device::WindowLayout layout{480, 2, 1, 480, 0};  // ranks: those of the world
  bool one_direct_set = false;                     // the direct algorithms' sets lie at one address
  std::uint64_t first_epoch = 0;
  std::uint64_t first_seq = 0;
  std::uint64_t first_op = 0;
  std::vector<std::uint64_t> idle_park_ns = {1'000'000'000};  // one is drawn by the seed; so for the next two
  std::vector<std::uint64_t> lease_ns = {1'000'000'000};
  std::uint64_t timeout_ns = 0;
  unsigned queue_depth = 2;
  unsigned ahead = 1;             // calls submitted before the first is waited for, at most queue_depth
  bool service = false;           // a thread per rank that claims launches now and then
  bool relays_aborts = false;     // and launches a parked worker after an abort until it has left for good
  bool scopes = false;            // threads of the test keep workers away
  bool wait_claims = true;        // waiting looks after launches
  bool wait_claims_after = true;  // waiting for a call after a stream does, if wait_claims does not
  unsigned applications = 1;  // threads that share a rank's calls; more than one: calls of count 0, no more than depth
  std::uint64_t step_limit = 300'000;
  std::vector<Call> calls;
  std::function<Call(Call, unsigned rank, std::size_t index)> change_call;
  std::function<bool(unsigned rank, std::size_t index)> may_submit;  // asked until true; one application
  std::function<bool(unsigned rank, std::size_t index)> may_store;   // the same, by the stream before its last store
};

struct Outcome {
  std::uint64_t seeds = 0;
  std::uint64_t steps = 0;
  std::uint64_t launches = 0;
  bool failed = false;
  std::uint64_t failed_seed = 0;
  std::string report;
};

class SchedWorld {
 public:
  struct Rank {
    device::WorkerContext ctx{};
    device::Persistent persistent{};
    SchedWorker worker;
    WarpWorker warps;
    std::uint64_t* launched = nullptr;  // in the model's memory
    std::uint64_t* stays = nullptr;     // the same
    std::byte* in[4] = {};
    std::byte* out[4] = {};
    std::uint64_t next_seq = 0;
    std::size_t next_call = 0;
    std::uint64_t generation = 0;  // of the newest launch asked for
    unsigned lanes_running = 0;
    bool away = false;  // a scope has begun and not ended: nothing but an abort's telling is launched
    bool host_lock = false;
    Clock host_unlocked{};  // what happened before the lock was free again
    // Under the lock, as in runtime/call_queue.cpp.
    std::uint64_t retired = 0;
    std::uint64_t afters = 0;                   // queued calls after a stream
    std::vector<std::uint8_t> is_after;         // per queue slot
    std::vector<device::LastStore> last_store;  // per call: the stream's; no word: not handed over yet
    Clock stream_given{};
    std::vector<std::uint64_t> published;  // payload bytes, per call
  };

  explicit SchedWorld(WorldConfig config, RunWorker run = sched_worker);

  /// More host threads, before explore(). The body runs once for each seed.
  void add_thread(std::string name, bool essential, std::function<void(SchedWorld&)> body);
  /// After every seed that went well.
  void check_after(std::function<std::string(SchedWorld&)> check) { check_after_ = std::move(check); }
  /// When a seed begins, before its threads run: more threads, and memory as it is at first.
  void before_each(std::function<void(SchedWorld&)> begin) { begin_ = std::move(begin); }
  /// Stops at the first failure.
  Outcome explore(std::uint64_t first_seed, std::uint64_t seeds, Weakening weakening = {});

  // For threads of tests.
  Rank& rank(unsigned r) { return ranks_[r]; }
  Scheduler& scheduler() { return scheduler_; }
  SharedMemory& memory() { return memory_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] const WorldConfig& config() const { return config_; }
  /// What submit and wait do about launches; kMine is acted upon.
  device::LaunchRight look_after_launch(unsigned r);
  // CallQueue::abort, relay_abort, park_and_stay (from stays_ on) and unpark: sched_abort.cpp.
  void abort(unsigned r, std::uint64_t code);
  void relay_abort(unsigned r);
  void park_and_stay(unsigned r);
  void unpark(unsigned r);
  void publish(unsigned r, const device::Command& command, std::uint64_t seq);
  void ring(unsigned r);  // after publish: the fence, and the launch if it is due
  /// Is the oldest command that has not completed whole?
  bool front_is_ready(unsigned r);
  bool worth_a_launch(unsigned r);  // without calls after a stream nobody asks
  /// @param claims looks after launches
  Status wait(unsigned r, std::uint64_t seq, std::uint64_t* info, bool claims);

 private:
  struct Extra {
    std::string name;
    bool essential;
    std::function<void(SchedWorld&)> body;
  };

  [[nodiscard]] unsigned buffers() const { return config_.ahead > 2 ? 4 : 2; }  // used by turns
  void make_rank(unsigned r);
  void name_window(unsigned r, unsigned way);
  void start_rank(unsigned r);
  void start(std::uint64_t seed, std::uint64_t* launches);
  void lane(unsigned r, unsigned lane);
  void application(unsigned r);
  void service(unsigned r);
  void launch(unsigned r);
  void stream(unsigned r);
  void lock_host(unsigned r);
  void unlock_host(unsigned r);
  void retire_locked(unsigned r);
  [[nodiscard]] Call call(unsigned r, std::size_t index) const;
  std::byte* input(unsigned r, std::size_t index);
  std::byte* output(unsigned r, std::size_t index);
  [[nodiscard]] std::uint64_t element(unsigned r, std::size_t index, std::uint64_t i) const;
  [[nodiscard]] std::uint64_t expected(std::size_t index, std::uint64_t i) const;
  void write_input(unsigned r, std::size_t index);
  void submit(unsigned r, std::size_t index, std::uint64_t seq);
  void finish(unsigned r, std::size_t index, std::uint64_t seq);
  std::string check_bytes() const;

  WorldConfig config_;
  RunWorker run_;
  Scheduler scheduler_;
  SharedMemory memory_;
  std::vector<Rank> ranks_;
  std::vector<Extra> extra_;
  std::function<std::string(SchedWorld&)> check_after_;
  std::function<void(SchedWorld&)> begin_;
  std::uint64_t seed_ = 0;
};

/// Seeds a unit: RINGBELL_SEEDS, else `usual`. RINGBELL_SEED=n: only that one, from first_seed().
std::uint64_t seed_count(std::uint64_t usual = 200);
std::uint64_t first_seed();

}  // namespace ringbell::test

#endif  // RINGBELL_TESTS_SUPPORT_SCHED_WORLD_HPP_
