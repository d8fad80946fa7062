// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_measure.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {

// The clock runs from submit to complete on each rank. The barrier before it is not in it.
template <class Body>
std::uint64_t Measurement::timed(Body body) {
  using Clock = std::chrono::steady_clock;
  if (beat_) beat_();
  if (options_.rate_hz != 0) wait_for_slot();
  meeting_.barrier();
  const Clock::time_point begin = Clock::now();
  const Status status = body();
  const Clock::time_point end = Clock::now();
  if (status != Status::kOk) throw peer_.failure(status);
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

// Evenly spaced; a call that comes late moves the ones after it. Spins: a sleep may oversleep a slot. Yields: a worker
// on this core must find out that it is idle.
void Measurement::wait_for_slot() {
  using Clock = std::chrono::steady_clock;
  const auto interval = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 / options_.rate_hz));
  next_slot_ = std::max(next_slot_ + interval, Clock::now());
  while (Clock::now() < next_slot_) std::this_thread::yield();
}

std::uint64_t Measurement::timed_call(Series& series, const PeerCall& call) {
  ++series.calls_made;
  if (series.row.way.issue == Issue::kAfter) return timed([&] { return peer_.call_after(call); });
  return timed([&] { return peer_.call(call); });
}

// Filling and checking take longer than a worker waits for work; without this every checked call would pay a launch.
void Measurement::wake_worker() {
  static_cast<void>(timed([this] { return peer_.nop(); }));
}

void Measurement::set_times(Measured& result, std::vector<std::uint64_t>& nanoseconds) {
  meeting_.maximum(nanoseconds);
  for (const std::uint64_t value : nanoseconds) result.samples_us.push_back(static_cast<double>(value) / 1e3);
  result.us = summarize(result.samples_us);
  result.round_p50_us = {result.us.p50};
}

PeerCall Measurement::call_on(const Series& series, int set) {
  buffers_.select(static_cast<std::uint64_t>(set) * series.sets.stride);
  const void* const in = series.in_place ? buffers_.out() : buffers_.in();
  return {in, buffers_.out(), series.row.count, series.row.dtype, series.row.op};
}

void Measurement::prepare(const Series& series, const ValueRule& rule, const PeerCall& call) {
  if (series.in_place) {
    buffers_.fill(call.out, rule, meeting_.rank(), call.count);
    return;
  }
  buffers_.fill(buffers_.in(), rule, meeting_.rank(), call.count);
  buffers_.poison(call.out, poison_byte(rule), series.row.bytes);
}

Row Measurement::nop() {
  Row row;
  row.is_nop = true;
  const auto submit = [this] { return peer_.nop(); };
  for (int i = 0; i < options_.warmup; ++i) static_cast<void>(timed(submit));
  std::vector<std::uint64_t> times;
  for (int i = 0; i < options_.iterations; ++i) times.push_back(timed(submit));
  set_times(row.out_of_place.emplace(), times);
  return row;
}

// One more call, with values that depend on the seed alone: hashes can be compared between runs and executors.
std::uint64_t Measurement::hash(Series& series) {
  const Row& row = series.row;
  const PeerCall call = call_on(series, 0);
  prepare(series, value_rule(row.dtype, row.op, meeting_.world(), options_.seed, 0), call);
  peer_.prepare(call);
  static_cast<void>(timed_call(series, call));
  std::vector<unsigned char> output(row.bytes);
  buffers_.copy_to_host(output.data(), call.out, row.bytes);
  const std::uint64_t hash = hash_output(output.data(), row.bytes);
  if (meeting_.all_equal(hash)) return hash;
  throw ExitError(kExitWrong, "the ranks' outputs differ: " + std::to_string(row.bytes) + " bytes of " +
                                  dtype_name(row.dtype) + " " + reduce_op_name(row.op));
}

// Calls `first` and the following, each on a set of its own. Those without --l2 are batches of one.
void Measurement::measure_batch(Series& series, int first, int count) {
  const Row& row = series.row;
  const bool check = options_.check && peer_.exact(row.dtype, row.op, meeting_.world());
  const std::uint64_t before = calls_;
  const auto rule_of = [&](int i) {
    return value_rule(row.dtype, row.op, meeting_.world(), options_.seed, before + 1 + static_cast<std::uint64_t>(i));
  };
  for (int i = 0; i < count && (options_.check || first == 0); ++i) {
    const PeerCall call = call_on(series, i);
    prepare(series, rule_of(i), call);
    if (first == 0) peer_.prepare(call);
  }
  if (options_.l2 != L2State::kWarm) buffers_.flush();
  if (options_.l2 == L2State::kCold) {  // the library's own state comes back, by calls that nobody looks at
    const PeerCall spare = call_on(series, series.sets.calls);
    if (first == 0) {
      prepare(series, rule_of(count), spare);
      peer_.prepare(spare);
    }
    for (int i = 0; i < std::max(1, options_.warmup); ++i) static_cast<void>(timed_call(series, spare));
  } else if (options_.check || options_.l2 != L2State::kWarm) {
    wake_worker();
  }
  for (int i = 0; i < count; ++i) {
    const std::uint64_t time = timed_call(series, call_on(series, i));
    if (first + i >= options_.warmup) series.times_ns.push_back(time);
  }
  for (int i = 0; i < count && check; ++i) {
    series.wrong += buffers_.count_wrong(call_on(series, i).out, rule_of(i), row.count);
  }
  calls_ += static_cast<std::uint64_t>(count) + 1;
}

Measured Measurement::measure(const Row& row, bool in_place) {
  Measured result;
  const int calls = options_.warmup + options_.iterations;
  Series series{row, in_place, set_plan(options_.l2, row.bytes, calls), 0, 0, {}};
  const std::uint64_t sent_before = peer_.sent_bytes().value_or(0);
  const auto launches_before = peer_.launches();
  if (options_.hash) result.hash = hash(series);
  for (int first = 0; first < calls; first += series.sets.calls) {
    measure_batch(series, first, std::min(series.sets.calls, calls - first));
  }
  result.path = peer_.path();
  if (const auto launches_now = peer_.launches()) result.launches = *launches_now - *launches_before;
  if (const auto sent_now = peer_.sent_bytes()) {
    const std::uint64_t sent = meeting_.sum(*sent_now - sent_before);
    result.sent_bytes = sent / series.calls_made;
    result.sent_as_expected = sent == row.expected_bytes(meeting_.world(), result.path) * series.calls_made;
  }
  set_times(result, series.times_ns);
  if (options_.check && peer_.exact(row.dtype, row.op, meeting_.world())) result.wrong = meeting_.sum(series.wrong);
  return result;
}

// Out of place only: in place the calls of a sample would add up.
Measured Measurement::measure_samples(const Row& row) {
  Measured result;
  const std::uint64_t stride = set_plan(L2State::kWarm, row.bytes, 1).stride;
  buffers_.select(0);
  const PeerCall call{buffers_.in(), buffers_.out(), row.count, row.dtype, row.op};
  const SampleBuffers around{static_cast<unsigned char*>(buffers_.in()) + stride,
                             static_cast<unsigned char*>(buffers_.out()) + stride, row.bytes};
  void* const input = row.way.chain ? around.source : buffers_.in();
  void* const output = row.way.chain ? around.sink : buffers_.out();
  const bool check = options_.check && peer_.exact(row.dtype, row.op, meeting_.world());
  peer_.prepare(call);
  SampleTimer timer(peer_, *work_, row.way, call, around);
  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> times_ns;
  for (int i = 0; i < options_.warmup + options_.iterations; ++i) {
    const ValueRule rule = value_rule(row.dtype, row.op, meeting_.world(), options_.seed, ++calls_);
    if (options_.check || i == 0) {
      buffers_.fill(input, rule, meeting_.rank(), row.count);
      buffers_.poison(output, poison_byte(rule), row.bytes);
      buffers_.poison(buffers_.out(), poison_byte(rule), row.bytes);
    }
    if (beat_) beat_();
    meeting_.barrier();
    const double us = timer.sample_us();
    if (i >= options_.warmup) times_ns.push_back(static_cast<std::uint64_t>(std::max(1.0, us * 1e3)));
    if (check) wrong += buffers_.count_wrong(output, rule, row.count);
  }
  result.path = peer_.path();
  set_times(result, times_ns);
  if (check) result.wrong = meeting_.sum(wrong);
  return result;
}

Row Measurement::all_reduce(const RowPlan& plan) {
  Row row = row_of(plan);
  row.refusal = peer_.refusal(plan.dtype, plan.op, plan.count);
  if (row.refusal.empty()) row.refusal = peer_.refusal(plan.way);
  if (!row.refusal.empty()) return row;
  if (!is_single(plan.way)) {
    row.out_of_place = measure_samples(row);
    return row;
  }
  row.out_of_place = measure(row, false);
  row.in_place = measure(row, true);
  return row;
}

}  // namespace ringbell::tools
