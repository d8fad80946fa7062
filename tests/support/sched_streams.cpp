// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sched_streams.hpp"

#include "tests/support/sched_values.hpp"

namespace ringbell::test {

using Host = SchedOps<>;

SchedStreams::SchedStreams(SchedWorld& world, StreamsConfig config, RunLaunched run)
    : world_(world), config_(std::move(config)), run_(run), ranks_(world.config().ranks) {
  for (unsigned r = 0; r < ranks_.size(); ++r) {
    const std::string name = "rank" + std::to_string(r) + ".stream.";
    Rank& rank = ranks_[r];
    rank.state = reinterpret_cast<device::LaunchedState*>(
        world_.memory().allocate(name + "kept", sizeof(device::LaunchedState)));
    world_.memory().name_part(&rank.state->turn, 8, name + "turn");
    for (unsigned i = 0; i < config_.buffers; ++i) {
      rank.in.push_back(world_.memory().allocate(name + "in" + std::to_string(i), kUserBytes));
      rank.out.push_back(world_.memory().allocate(name + "out" + std::to_string(i), kUserBytes));
    }
  }
  if (config_.streams.empty()) {
    for (unsigned r = 0; r < ranks_.size(); ++r) {
      config_.streams.push_back({r, {}});
      for (std::size_t call = 0; call < config_.calls.size(); ++call) config_.streams.back().calls.push_back(call);
    }
  }
  streams_.resize(config_.streams.size());
  world_.before_each([this](SchedWorld&) { begin(); });
}

void SchedStreams::begin() {
  for (unsigned r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.done.assign(config_.calls.size(), {});
    rank.taken = rank.refused = 0;
    device::Persistent kept{0, config_.first_op, 0, config_.first_epoch, {}};
    for (device::Epochs& epochs : kept.epochs) epochs = {config_.first_epoch, config_.first_epoch};
    const device::LaunchedState first = device::launched_state(kept);
    world_.memory().set_initial(&rank.state->op_index, first.op_index);
    world_.memory().set_initial(&rank.state->direct_epoch, first.direct_epoch);
    for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
      world_.memory().set_initial(&rank.state->epochs[wire].send, first.epochs[wire].send);
      world_.memory().set_initial(&rank.state->epochs[wire].recv, first.epochs[wire].recv);
    }
    const device::WorkerContext& host = world_.rank(r).ctx;
    const device::WorkerContext ctx = device::stream_context(host);
    const auto word = [&](std::uint64_t offset) { return reinterpret_cast<std::uint64_t*>(ctx.window[r] + offset); };
    for (unsigned wire = 0; wire < device::kWireFormats; ++wire) {
      world_.memory().set_initial(word(ctx.layout.credit_offset(0, wire)), config_.first_epoch);
    }
    world_.memory().set_initial(word(ctx.layout.tail_offset(0)), config_.first_epoch);
    for (unsigned source = 0; source < ctx.world; ++source) {
      world_.memory().set_initial(word(ctx.layout.direct_tail_offset(source)), config_.first_epoch);
    }
  }
  for (unsigned s = 0; s < streams_.size(); ++s) {
    Stream& stream = streams_[s];
    stream.plan = config_.streams[s];
    const unsigned r = stream.plan.rank;
    stream.ctx = device::stream_context(world_.rank(r).ctx);
    if (config_.change_context) config_.change_context(s, stream.ctx);
    stream.worker = SchedWorker{};
    stream.warps = WarpWorker{};
    stream.ended = {};
    stream.worker.lanes = stream.warps.lanes = config_.lanes;
    for (unsigned l = 0; l < config_.lanes; ++l) {
      const unsigned thread = world_.scheduler().add(
          "rank" + std::to_string(r) + ".s" + std::to_string(s) + ".lane" + std::to_string(l),
          [this, s, l] { lane(s, l); }, l == 0);
      stream.warps.thread[l] = thread;
      if (!config_.warps) stream.worker.thread[l] = thread;
      SchedModel::is_worker[thread] = true;
    }
  }
  SchedModel::on_turn = [this](const std::uint64_t* turn, bool taken) {
    for (Rank& rank : ranks_) {
      if (turn == &rank.state->turn) ++(taken ? rank.taken : rank.refused);
    }
  };
  if (on_begin) on_begin();
}

void SchedStreams::lane(unsigned s, unsigned lane) {
  Stream& stream = streams_[s];
  for (const std::size_t call : config_.streams[s].calls) {
    if (lane == 0) prepare(s, call);
    const device::LaunchedCall launched = launched_call(stream.plan.rank, call);
    if (config_.warps) {
      stream.warps.meet(stream.warps.of_all, {WarpWorker::Kind::kSync, config_.lanes, 0, false, true, true});
      WarpGroup group(stream.warps, lane);
      warp_launched(stream.ctx, group, launched);
      stream.warps.meet(stream.warps.of_all, {WarpWorker::Kind::kSync, config_.lanes});
    } else {
      static_cast<void>(stream.worker.meet(stream.ended, config_.lanes, Status::kOk, true));
      SchedGroup group(stream.worker, lane);
      run_(stream.ctx, group, launched);
      static_cast<void>(stream.worker.meet(stream.ended, config_.lanes, Status::kOk));
    }
    if (lane == 0) collect(s, call);
  }
}

device::LaunchedCall SchedStreams::launched_call(unsigned r, std::size_t index) const {
  const Call& c = config_.calls[index];
  const device::Command command{
      input(r, index), output(r, index), c.count,        0,           c.chunk_bytes, device::CommandKind::kAllReduce,
      c.flags,         c.dtype,          ReduceOp::kSum, c.algorithm, c.protocol,    1};
  device::LaunchedCall launched{};
  for (unsigned i = 0; i < device::kCommandQuads; ++i) launched.command[i] = device::command_pack(command, i, 0);
  launched.issue = config_.same_issue ? 0 : index;
  launched.state = ranks_[r].state;
  return launched;
}

std::byte* SchedStreams::output(unsigned r, std::size_t index) const {
  return ranks_[r].out[index % config_.buffers] + kGuard + config_.calls[index].offset;
}
std::byte* SchedStreams::input(unsigned r, std::size_t index) const {
  return config_.calls[index].in_place ? output(r, index)
                                       : ranks_[r].in[index % config_.buffers] + kGuard + config_.calls[index].offset;
}

// Other values than those of host-issued calls beside it.
std::uint64_t SchedStreams::element(unsigned r, std::size_t index, std::uint64_t i) const {
  return element_as(config_.calls[index].dtype, element_of(world_.seed() + 500'009, r, index, i, config_.first_epoch));
}

void SchedStreams::prepare(unsigned s, std::size_t index) {
  const unsigned r = streams_[s].plan.rank;
  const Call& c = config_.calls[index];
  const std::size_t bytes = dtype_bytes(c.dtype);
  while (config_.may_launch && !config_.may_launch(s, index)) Host::pause(1);
  SeededRandom& random = world_.scheduler().random();
  const auto most = static_cast<std::uint32_t>(random.one_in(3) ? config_.pauses : 4);
  for (std::uint32_t pauses = random.below(most + 1); pauses != 0; --pauses) Host::pause(1);
  for (std::uint64_t i = 0; i < c.count; ++i) {
    store_element(output(r, index) + i * bytes, bytes, cut(kPoison + i, bytes));
    store_element(input(r, index) + i * bytes, bytes, element(r, index, i));
  }
  store_element(output(r, index) + c.count * bytes, bytes, cut(kPoison, bytes));
  ranks_[r].done[index].begun = true;
}

void SchedStreams::collect(unsigned s, std::size_t index) {
  const unsigned r = streams_[s].plan.rank;
  const Call& c = config_.calls[index];
  const std::size_t bytes = dtype_bytes(c.dtype);
  Scheduler& scheduler = world_.scheduler();
  Done& done = ranks_[r].done[index];
  done.out.assign(c.count, 0);
  done.filled = true;
  for (std::uint64_t i = 0; i < c.count; ++i) {
    done.out[i] = load_element(output(r, index) + i * bytes, bytes);
    done.filled = done.filled && done.out[i] == cut(~std::uint64_t{0}, bytes);
  }
  if (load_element(output(r, index) + c.count * bytes, bytes) != cut(kPoison, bytes)) {
    scheduler.fail(text("launched call %zu wrote behind its output", index));
  }
  const bool right = is_sum(r, index, std::vector<std::size_t>(ranks_.size(), index));
  if (config_.must_succeed && !right) {
    scheduler.fail(text("launched call %zu gave 0x%llx at first%s", index, static_cast<unsigned long long>(done.out[0]),
                        done.filled ? ": it failed" : ""));
  }
  // The buffers are the application's again: what is still read or written of them now is a fault.
  if (right) {
    for (std::uint64_t i = 0; i < c.count; ++i) {
      store_element(output(r, index) + i * bytes, bytes, cut(kPoison + i, bytes));
      store_element(input(r, index) + i * bytes, bytes, cut(kPoison - i, bytes));
    }
  }
  done.ended = true;
}

bool SchedStreams::is_sum(unsigned r, std::size_t index, const std::vector<std::size_t>& of_ranks) const {
  const Call& c = config_.calls[index];
  const Done& done = ranks_[r].done[index];
  for (std::uint64_t i = 0; i < c.count; ++i) {
    std::uint64_t sum = element(0, of_ranks[0], i);
    for (unsigned from = 1; from < ranks_.size(); ++from)
      sum = add_elements(c.dtype, sum, element(from, of_ranks[from], i));
    if (done.out[i] != cut(sum, dtype_bytes(c.dtype))) return false;
  }
  return true;
}

std::uint32_t SchedStreams::threads_of(unsigned r) const {
  std::uint32_t threads = 0;
  for (const Stream& stream : streams_) {
    for (unsigned l = 0; l < config_.lanes && stream.plan.rank == r; ++l) threads |= 1u << stream.warps.thread[l];
  }
  return threads;
}

void SchedStreams::forbid_windows(unsigned r, const std::string& why) {
  const device::WorkerContext& host = world_.rank(r).ctx;
  for (unsigned peer = 0; peer < ranks_.size(); ++peer) {
    world_.memory().forbid_stores(threads_of(r), host.window[peer], host.layout.window_bytes(), why);
  }
}

}  // namespace ringbell::test
