// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sched_world.hpp"

#include <algorithm>
#include <cstdlib>

#include "tests/support/sched_values.hpp"

namespace ringbell::test {

using device::ControlBlock;
using Host = SchedOps<>;

namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::uint64_t seed_count(std::uint64_t usual) {
  return std::getenv("RINGBELL_SEED") != nullptr ? 1 : number_of("RINGBELL_SEEDS", usual);
}
std::uint64_t first_seed() { return number_of("RINGBELL_SEED", 1); }

namespace {
WorldConfig with_ranks(WorldConfig config) {
  config.layout.ranks = config.ranks;
  return config;
}
}  // namespace

SchedWorld::SchedWorld(WorldConfig config, RunWorker run)
    : config_(with_ranks(std::move(config))),
      run_(run),
      memory_(scheduler_, config_.ranks * (config_.layout.window_bytes() + (64u << 10) + 8 * kUserBytes)),
      ranks_(config_.ranks) {
  for (unsigned r = 0; r < config_.ranks; ++r) make_rank(r);
  for (unsigned r = 0; r < config_.ranks; ++r) {
    for (unsigned peer = 0; peer < config_.ranks; ++peer) ranks_[r].ctx.window[peer] = ranks_[peer].ctx.window[peer];
  }
}

void SchedWorld::make_rank(unsigned r) {
  Rank& rank = ranks_[r];
  const std::string name = "rank" + std::to_string(r) + ".";
  // Formats that share bytes (channels = 0) still need room for one channel of the widest.
  const device::WindowLayout& layout = config_.layout;
  const std::uint64_t window_bytes = layout.window_bytes();
  std::byte* control = memory_.allocate(name + "control", device::control_bytes(config_.queue_depth), 128);
  rank.ctx.control = reinterpret_cast<ControlBlock*>(control);
  rank.ctx.queue = reinterpret_cast<device::CommandSlot*>(control + device::queue_offset());
  rank.ctx.completions =
      reinterpret_cast<device::Completion*>(control + device::completions_offset(config_.queue_depth));
  memory_.name_part(&rank.ctx.control->state, 8, name + "state");
  memory_.name_part(&rank.ctx.control->control, 16, name + "request");
  memory_.name_part(rank.ctx.queue, config_.queue_depth * sizeof(device::CommandSlot), name + "queue");
  memory_.name_part(rank.ctx.completions, config_.queue_depth * sizeof(device::Completion), name + "completions");
  rank.ctx.window[r] = memory_.allocate(name + "window", window_bytes, 128);
  for (unsigned way = 0; way < device::kWays; ++way) name_window(r, way);
  rank.launched = reinterpret_cast<std::uint64_t*>(memory_.allocate(name + "launched", 8));
  rank.stays = reinterpret_cast<std::uint64_t*>(memory_.allocate(name + "stays", 8));
  for (unsigned i = 0; i < buffers(); ++i) {
    rank.in[i] = memory_.allocate(name + "in" + std::to_string(i), kUserBytes);
    rank.out[i] = memory_.allocate(name + "out" + std::to_string(i), kUserBytes);
  }
  rank.ctx.persistent = &rank.persistent;
  rank.ctx.rank = rank.ctx.ring_index = r;
  rank.ctx.world = config_.ranks;
  rank.ctx.ring_next = (r + 1) % config_.ranks;
  rank.ctx.ring_prev = (r + config_.ranks - 1) % config_.ranks;
  rank.ctx.queue_depth = config_.queue_depth;
  device::set_layout(&rank.ctx, layout);
  for (device::DirectRegion& region : rank.ctx.direct) {
    if (config_.one_direct_set) region.set_bytes = 0;
  }
  rank.ctx.timeout_ns = config_.timeout_ns;
}

void SchedWorld::name_window(unsigned r, unsigned way) {
  const device::WindowLayout& layout = config_.layout;
  const std::byte* window = ranks_[r].ctx.window[r] + way * layout.way_bytes();
  const std::string name = "rank" + std::to_string(r) + (way == device::kHostWay ? "." : ".stream.");
  for (unsigned source = 0; source < config_.ranks; ++source) {
    memory_.name_part(window + layout.abort_offset(source, 0), 256, name + "abort" + std::to_string(source));
    memory_.name_part(window + layout.header_offset(source, 0), 256, name + "header" + std::to_string(source));
  }
  constexpr const char* kWires[] = {"ll", "ll128", "simple"};
  for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
    memory_.name_part(window + layout.credit_offset(0, wire), 8, name + kWires[wire] + ".credit");
    for (std::uint64_t slot = 0; slot < layout.slots; ++slot) {
      const std::uint64_t bytes = wire == 0 ? layout.ll_slot_bytes() : layout.ll128_slot_bytes();
      memory_.name_part(window + layout.slot(wire, 0, slot), wire == 2 ? layout.slot_bytes : bytes,
                        name + kWires[wire] + ".slot" + std::to_string(slot));
    }
  }
  memory_.name_part(window + layout.tail_offset(0), 8, name + "simple.tail");
  for (unsigned source = 0; source < layout.ranks; ++source) {
    const std::string of = std::string(1, '.').append(std::to_string(source));
    memory_.name_part(window + layout.direct_tail_offset(source), 8, name + "direct.tail" + of);
    for (unsigned at = 0; at < device::kWireFormats * device::kDirectSets; ++at) {
      const unsigned wire = at / device::kDirectSets;
      const unsigned set = at % device::kDirectSets;
      memory_.name_part(window + layout.direct_slot(wire, set, source), layout.direct_slot_bytes_of(wire),
                        name + "direct." + kWires[wire] + ".set" + std::to_string(set) + of);
    }
  }
}

void SchedWorld::add_thread(std::string name, bool essential, std::function<void(SchedWorld&)> body) {
  extra_.push_back({std::move(name), essential, std::move(body)});
}

Call SchedWorld::call(unsigned r, std::size_t index) const {
  return config_.change_call ? config_.change_call(config_.calls[index], r, index) : config_.calls[index];
}

void SchedWorld::start(std::uint64_t seed, std::uint64_t* launches) {
  seed_ = seed;
  scheduler_.begin(seed, config_.step_limit);
  memory_.reset();
  SchedModel::is_worker.fill(false);
  SchedModel::on_turn = nullptr;
  for (unsigned r = 0; r < config_.ranks; ++r) {
    *launches += ranks_[r].generation;
    start_rank(r);
  }
  for (const Extra& extra : extra_)
    scheduler_.add(
        extra.name, [this, &extra] { extra.body(*this); }, extra.essential);
  if (begin_) begin_(*this);
}

void SchedWorld::start_rank(unsigned r) {
  SeededRandom& random = scheduler_.random();
  const auto draw = [&](const std::vector<std::uint64_t>& from) {
    return from[random.below(static_cast<std::uint32_t>(from.size()))];
  };
  Rank& rank = ranks_[r];
  const std::string name = "rank" + std::to_string(r) + ".";
  rank.ctx.idle_park_ns = draw(config_.idle_park_ns);
  rank.ctx.lease_ns = draw(config_.lease_ns);
  rank.persistent = {config_.first_seq, config_.first_op, 0, config_.first_epoch, {}};
  auto word = [&](std::uint64_t offset) { return reinterpret_cast<std::uint64_t*>(rank.ctx.window[r] + offset); };
  if (config_.first_epoch != 0) {
    for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
      rank.persistent.epochs[wire] = {config_.first_epoch, config_.first_epoch};
      memory_.set_initial(word(config_.layout.credit_offset(0, wire)), config_.first_epoch);
    }
    memory_.set_initial(word(config_.layout.tail_offset(0)), config_.first_epoch);
    for (unsigned source = 0; source < config_.ranks; ++source) {
      memory_.set_initial(word(config_.layout.direct_tail_offset(source)), config_.first_epoch);
    }
  }
  rank.next_seq = rank.retired = config_.first_seq;
  rank.next_call = 0;
  rank.generation = 0;
  rank.lanes_running = 0;
  rank.away = false;
  rank.host_lock = false;
  rank.host_unlocked.fill(0);
  rank.afters = 0;
  rank.is_after.assign(config_.queue_depth, 0);
  rank.last_store.assign(config_.calls.size(), {});
  rank.stream_given.fill(0);
  rank.published.assign(config_.calls.size(), 0);
  rank.worker = SchedWorker{};
  rank.warps = WarpWorker{};
  if (config_.calls.empty()) return;  // nothing for a worker to do
  rank.worker.lanes = rank.warps.lanes = config_.lanes;
  for (unsigned l = 0; l < config_.lanes; ++l) {
    rank.worker.thread[l] = scheduler_.add(
        name + "lane" + std::to_string(l), [this, r, l] { lane(r, l); }, false);
    rank.warps.thread[l] = rank.worker.thread[l];
    SchedModel::is_worker[rank.worker.thread[l]] = true;
  }
  for (unsigned a = 0; a < config_.applications; ++a) {
    scheduler_.add(
        name + "app" + std::to_string(a), [this, r] { application(r); }, true);
  }
  if (config_.service)
    scheduler_.add(
        name + "service", [this, r] { service(r); }, false);
  if (std::any_of(config_.calls.begin(), config_.calls.end(), [](const Call& c) { return c.after_stream; })) {
    scheduler_.add(
        name + "stream", [this, r] { stream(r); }, true);
  }
}

Outcome SchedWorld::explore(std::uint64_t first_seed, std::uint64_t seeds, Weakening weakening) {
  SchedModel::memory = &memory_;
  SchedModel::weakening = weakening;
  Outcome outcome;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds && !outcome.failed; ++seed) {
    start(seed, &outcome.launches);
    bool ok = scheduler_.run();
    std::string after;
    if (ok) {
      memory_.settle();
      after = check_after_ ? check_after_(*this) : check_bytes();
      ok = after.empty();
    }
    ++outcome.seeds;
    outcome.steps += scheduler_.steps();
    if (!ok) {
      outcome.failed = true;
      outcome.failed_seed = seed;
      outcome.report = (after.empty() ? "" : after + "\n") + scheduler_.report();
    }
  }
  SchedModel::memory = nullptr;
  SchedModel::on_turn = nullptr;
  SchedModel::weakening = {};
  return outcome;
}

void SchedWorld::lane(unsigned r, unsigned lane) {
  Rank& rank = ranks_[r];
  for (std::uint64_t generation = 1;; ++generation) {
    while (rank.generation < generation) scheduler_.block();
    // A launch begins when the one before has ended: on a stream, and on the CPU's one thread.
    if (config_.warps) {
      rank.warps.meet(rank.warps.of_all, {WarpWorker::Kind::kSync, config_.lanes, 0, false, true, true});
    } else {
      static_cast<void>(rank.worker.meet(rank.worker.of_all, config_.lanes, Status::kOk, true));
    }
    ++rank.lanes_running;
    if (config_.warps) {
      WarpGroup group(rank.warps, lane);
      warp_worker(rank.ctx, group, generation);
    } else {
      SchedGroup group(rank.worker, lane);
      run_(rank.ctx, group, generation);
    }
    --rank.lanes_running;
  }
}

device::LaunchRight SchedWorld::look_after_launch(unsigned r) {
  Rank& rank = ranks_[r];
  if (config_.scopes && Host::load_relaxed(rank.stays) != 0) {
    const std::uint64_t state = Host::load_acquire(&rank.ctx.control->state.state, device::Edge::kState);
    const bool gone = device::state_residency(state) == device::Residency::kBroken;
    return gone ? device::LaunchRight::kBroken : device::LaunchRight::kNotNeeded;
  }
  const device::LaunchRight right = device::claim_launch<Host>(&rank.ctx.control->state, rank.launched);
  if (right != device::LaunchRight::kMine) return right;
  if (config_.scopes) {
    Host::fence_seq_cst(device::Edge::kStart);
    if (Host::load_relaxed(rank.stays) != 0) {
      device::give_back_launch<Host>(rank.launched, Host::load_relaxed(rank.launched));
      return device::LaunchRight::kNotNeeded;
    }
  }
  if (rank.away) scheduler_.fail("a launch in a scope");
  launch(r);
  return right;
}

// The caller has the right to.
void SchedWorld::launch(unsigned r) {
  Rank& rank = ranks_[r];
  ++rank.generation;
  scheduler_.trace("launch", nullptr, rank.generation);
  if (*rank.launched != rank.generation) scheduler_.fail("two launches of one generation");
  for (unsigned l = 0; l < config_.lanes; ++l) {
    memory_.join(rank.worker.thread[l], memory_.clock(scheduler_.self()));
    scheduler_.wake(rank.worker.thread[l]);
  }
}

void SchedWorld::publish(unsigned r, const device::Command& command, std::uint64_t seq) {
  device::publish_command<Host>(ranks_[r].ctx.queue, config_.queue_depth, seq, command);
}

// The lock is a real one: it orders memory.
void SchedWorld::lock_host(unsigned r) {
  while (ranks_[r].host_lock) Host::pause(1);
  ranks_[r].host_lock = true;
  memory_.join(scheduler_.self(), ranks_[r].host_unlocked);
}
void SchedWorld::unlock_host(unsigned r) {
  ranks_[r].host_unlocked = memory_.clock(scheduler_.self());
  ranks_[r].host_lock = false;
}

bool SchedWorld::worth_a_launch(unsigned r) { return ranks_[r].afters == 0 || front_is_ready(r); }

void SchedWorld::retire_locked(unsigned r) {
  Rank& rank = ranks_[r];
  const std::uint32_t mask = config_.queue_depth - 1;
  for (; rank.retired < rank.next_seq; ++rank.retired) {
    const std::uint64_t word =
        Host::load_acquire(&rank.ctx.completions[rank.retired & mask].word, device::Edge::kCompletion);
    if (device::completion_count(word) != rank.retired + 1) return;
    rank.afters -= rank.is_after[rank.retired & mask];
    rank.is_after[rank.retired & mask] = 0;
  }
}

bool SchedWorld::front_is_ready(unsigned r) {
  Rank& rank = ranks_[r];
  lock_host(r);
  retire_locked(r);
  const bool ready =
      rank.retired < rank.next_seq && device::command_is_ready<Host>(rank.ctx.queue, config_.queue_depth, rank.retired);
  unlock_host(r);
  return ready;
}

void SchedWorld::ring(unsigned r) {
  Host::fence_seq_cst(device::Edge::kPark);
  if (!worth_a_launch(r)) return;
  while (look_after_launch(r) == device::LaunchRight::kUnresolved) Host::pause(1);
}

Status SchedWorld::wait(unsigned r, std::uint64_t seq, std::uint64_t* info, bool claims) {
  const device::Completion& line = ranks_[r].ctx.completions[seq & (config_.queue_depth - 1)];
  bool broken = false;
  for (unsigned polls = 1;; ++polls) {
    const std::uint64_t word = Host::load_acquire(&line.word, device::Edge::kCompletion);
    if (word >> 8 == seq + 1) {
      *info = Host::load_relaxed(&line.info);
      return device::completion_status(word);
    }
    if (broken) return Status::kAborted;  // what was completed before it broke has been seen by now
    if (claims && polls % 4 == 0 && worth_a_launch(r)) {
      broken = look_after_launch(r) == device::LaunchRight::kBroken;
    }
    Host::pause(polls);
  }
}

void SchedWorld::service(unsigned r) {
  for (;;) {
    for (std::uint32_t pauses = scheduler_.random().below(32) + 1; pauses != 0; --pauses) Host::pause(1);
    if (config_.relays_aborts) relay_abort(r);
    if (front_is_ready(r)) static_cast<void>(look_after_launch(r));
  }
}

// What it is told to do was told before, by a driver or under a lock: it comes after all that its teller did.
void SchedWorld::stream(unsigned r) {
  Rank& rank = ranks_[r];
  for (std::size_t index = 0; index < config_.calls.size(); ++index) {
    if (!call(r, index).after_stream) continue;
    while (rank.last_store[index].word == nullptr) Host::pause(1);
    memory_.join(scheduler_.self(), rank.stream_given);
    SeededRandom& random = scheduler_.random();
    for (std::uint32_t pauses = random.below(random.one_in(3) ? 400 : 8); pauses != 0; --pauses) Host::pause(1);
    while (config_.may_store && !config_.may_store(r, index)) Host::pause(1);
    write_input(r, index);
    const device::LastStore& last = rank.last_store[index];
    if (SchedModel::weak(device::Edge::kCommand, Side::kStream)) {
      Host::store_relaxed(last.word, last.value);
    } else {
      Host::store_release(last.word, last.value, device::Edge::kCommand);
    }
  }
}

std::byte* SchedWorld::output(unsigned r, std::size_t index) {
  return ranks_[r].out[index % buffers()] + kGuard + call(r, index).offset;
}
std::byte* SchedWorld::input(unsigned r, std::size_t index) {
  const Call c = call(r, index);
  if (c.of_last_output) return output(r, index - 1);
  return c.in_place ? output(r, index) : ranks_[r].in[index % buffers()] + kGuard + c.offset;
}

std::uint64_t SchedWorld::element(unsigned r, std::size_t index, std::uint64_t i) const {
  if (config_.calls[index].of_last_output) return expected(index - 1, i);
  return element_as(config_.calls[index].dtype, element_of(seed_, r, index, i, config_.first_epoch));
}

std::uint64_t SchedWorld::expected(std::size_t index, std::uint64_t i) const {
  const DType dtype = config_.calls[index].dtype;
  std::uint64_t sum = element(0, index, i);
  for (unsigned r = 1; r < config_.ranks; ++r) sum = add_elements(dtype, sum, element(r, index, i));
  return cut(sum, dtype_bytes(dtype));
}

void SchedWorld::write_input(unsigned r, std::size_t index) {
  const Call c = call(r, index);
  const std::size_t bytes = dtype_bytes(c.dtype);
  if (c.of_last_output) return;
  for (std::uint64_t i = 0; i < c.count; ++i) store_element(input(r, index) + i * bytes, bytes, element(r, index, i));
}

void SchedWorld::finish(unsigned r, std::size_t index, std::uint64_t seq) {
  const Call c = call(r, index);
  std::uint64_t published = 0;
  const bool claims = config_.wait_claims || (c.after_stream && config_.wait_claims_after);
  const Status status = wait(r, seq, &published, claims);
  if (status != c.expected) {
    scheduler_.fail(text("call %zu ended with status %d, expected %d", index, static_cast<int>(status),
                         static_cast<int>(c.expected)));
  }
  if (status != Status::kOk) return;
  ranks_[r].published[index] = published;
  const std::size_t bytes = dtype_bytes(c.dtype);
  const std::byte* out = output(r, index);
  for (std::uint64_t i = 0; i < c.count; ++i) {
    const std::uint64_t got = load_element(out + i * bytes, bytes);
    if (got == expected(index, i)) continue;
    scheduler_.fail(text("call %zu, out[%llu] is 0x%llx, expected 0x%llx", index, static_cast<unsigned long long>(i),
                         static_cast<unsigned long long>(got), static_cast<unsigned long long>(expected(index, i))));
  }
  // The buffers are the application's again: what is still read or written of them now is a fault.
  const bool next_reads = index + 1 < config_.calls.size() && call(r, index + 1).of_last_output;
  for (std::uint64_t i = 0; i < c.count && !next_reads; ++i) {
    store_element(output(r, index) + i * bytes, bytes, kPoison + i);
    if (!c.of_last_output) store_element(input(r, index) + i * bytes, bytes, kPoison - i);
  }
}

void SchedWorld::application(unsigned r) {
  Rank& rank = ranks_[r];
  std::size_t submitted[8] = {};
  std::uint64_t seqs[8] = {};
  std::size_t head = 0;
  std::size_t tail = 0;
  for (;;) {
    // Not under the lock: the service thread takes it, too.
    const auto must_wait = [&] {
      return head - tail < config_.ahead && rank.next_call < config_.calls.size() &&
             !config_.may_submit(r, rank.next_call);
    };
    while (config_.may_submit && must_wait()) Host::pause(1);
    lock_host(r);
    const bool more = rank.next_call < config_.calls.size();
    if (more && head - tail < config_.ahead) {
      const std::size_t index = submitted[head % 8] = rank.next_call++;
      const std::uint64_t seq = seqs[head % 8] = rank.next_seq++;
      ++head;
      const Call c = call(r, index);
      if (!c.after_stream) write_input(r, index);
      for (std::uint32_t pauses = scheduler_.random().below(scheduler_.random().one_in(3) ? 200 : 4); pauses != 0;
           --pauses) {
        Host::pause(1);
      }
      submit(r, index, seq);
      unlock_host(r);
      ring(r);
      continue;
    }
    unlock_host(r);
    if (tail == head) {
      if (!more) return;
      continue;
    }
    finish(r, submitted[tail % 8], seqs[tail % 8]);
    ++tail;
  }
}

void SchedWorld::submit(unsigned r, std::size_t index, std::uint64_t seq) {
  Rank& rank = ranks_[r];
  const Call c = call(r, index);
  if (seq + 1 - rank.retired > config_.queue_depth) retire_locked(r);  // what was in this slot has been waited for
  const bool all_reduce = c.count != 0 || config_.ranks > 1;
  const device::Command command{
      input(r, index), output(r, index), c.count,
      index,           c.chunk_bytes,    all_reduce ? device::CommandKind::kAllReduce : device::CommandKind::kNop,
      c.flags,         c.dtype,          ReduceOp::kSum,
      c.algorithm,     c.protocol,       1};
  if (!c.after_stream) return publish(r, command, seq);
  const device::LastStore last = device::publish_all_but_last<Host>(rank.ctx.queue, config_.queue_depth, seq, command);
  rank.is_after[seq & (config_.queue_depth - 1)] = 1;
  ++rank.afters;
  rank.stream_given = memory_.clock(scheduler_.self());
  rank.last_store[index] = last;
}

std::string SchedWorld::check_bytes() const {
  for (std::size_t index = 0; index < config_.calls.size(); ++index) {
    std::uint64_t sum = 0;
    bool ok = true;
    for (unsigned r = 0; r < config_.ranks; ++r) {
      sum += ranks_[r].published[index];
      ok = ok && call(r, index).expected == Status::kOk;
    }
    const Call& c = config_.calls[index];
    const std::uint64_t times = c.algorithm == Algorithm::kRing ? 2 : config_.ranks;
    const std::uint64_t wanted = times * (config_.ranks - 1) * c.count * dtype_bytes(c.dtype);
    if (ok && sum != wanted) {
      return text("call %zu: %llu bytes published, expected %llu", index, static_cast<unsigned long long>(sum),
                  static_cast<unsigned long long>(wanted));
    }
  }
  return {};
}

}  // namespace ringbell::test
