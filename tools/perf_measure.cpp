// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_measure.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

#include "tools/exit_codes.hpp"

namespace ringbell::tools {

ExitError call_error(const Communicator& comm, Status status) {
  const bool broke = status != Status::kInvalidArgument && status != Status::kUnsupported && status != Status::kAgain &&
                     status != Status::kStale;
  // What breaks a communicator the library has logged as an error: on stderr, unless a file was asked for.
  if (broke && std::getenv("RINGBELL_LOG_FILE") == nullptr) return {exit_code_of_call(status), ""};
  return {exit_code_of_call(status), std::string(status_name(status)) + ": " + comm.last_error()};
}

// The clock runs from submit to complete on each rank. The barrier before it is not in it.
std::uint64_t Measurement::timed(const std::function<Ticket()>& submit) {
  using Clock = std::chrono::steady_clock;
  meeting_.barrier();
  const Clock::time_point begin = Clock::now();
  const Ticket ticket = submit();
  const Status status = ticket.status == Status::kOk ? comm_.wait(ticket) : ticket.status;
  const Clock::time_point end = Clock::now();
  if (status != Status::kOk) {
    throw call_error(comm_, status);
  }
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

// Filling and checking take longer than a worker waits for work; without this every checked call would pay a launch.
void Measurement::wake_worker() {
  static_cast<void>(timed([this] { return comm_.nop(); }));
}

Summary Measurement::summary_of_slowest(std::vector<std::uint64_t>& nanoseconds) {
  meeting_.maximum(nanoseconds);
  std::vector<double> microseconds;
  for (const std::uint64_t value : nanoseconds) microseconds.push_back(static_cast<double>(value) / 1e3);
  return summarize(std::move(microseconds));
}

std::uint64_t Measurement::sent_bytes() const {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : comm_.stats().sent_bytes) total += bytes;
  return total;
}

void Measurement::prepare(const Row& row, const ValueRule& rule, bool in_place) {
  if (in_place) {
    buffers_.fill(buffers_.out(), rule, meeting_.rank(), row.count);
    return;
  }
  buffers_.fill(buffers_.in(), rule, meeting_.rank(), row.count);
  buffers_.poison(buffers_.out(), poison_byte(rule), row.bytes);
}

Row Measurement::nop() {
  Row row;
  row.is_nop = true;
  const auto submit = [this] { return comm_.nop(); };
  for (int i = 0; i < options_.warmup; ++i) static_cast<void>(timed(submit));
  std::vector<std::uint64_t> times;
  for (int i = 0; i < options_.iterations; ++i) times.push_back(timed(submit));
  row.out_of_place.emplace().us = summary_of_slowest(times);
  return row;
}

// One more call, with values that depend on the seed alone: hashes can be compared between runs and executors.
std::uint64_t Measurement::hash(const Row& row, const void* in, void* out) {
  const ValueRule rule = value_rule(row.dtype, row.op, meeting_.world(), options_.seed, 0);
  prepare(row, rule, in == out);
  static_cast<void>(timed([&] { return comm_.all_reduce(in, out, row.count, row.dtype, row.op); }));
  std::vector<unsigned char> output(row.bytes);
  buffers_.copy_to_host(output.data(), out, row.bytes);
  return hash_output(output.data(), row.bytes);
}

Measured Measurement::measure(const Row& row, bool in_place) {
  const void* const in = in_place ? buffers_.out() : buffers_.in();
  void* const out = buffers_.out();
  Measured result;
  if (options_.hash) {
    result.hash = hash(row, in, out);
    if (!meeting_.all_equal(*result.hash)) {
      throw ExitError(kExitWrong, "the ranks' outputs differ: " + std::to_string(row.bytes) + " bytes of " +
                                      dtype_name(row.dtype) + " " + reduce_op_name(row.op));
    }
  } else {
    prepare(row, value_rule(row.dtype, row.op, meeting_.world(), options_.seed, ++calls_), in_place);
  }
  const auto submit = [&] { return comm_.all_reduce(in, out, row.count, row.dtype, row.op); };
  const int calls = options_.warmup + options_.iterations;
  const std::uint64_t sent_before = sent_bytes();
  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> times;
  for (int i = 0; i < calls; ++i) {
    const ValueRule rule = value_rule(row.dtype, row.op, meeting_.world(), options_.seed, ++calls_);
    if (options_.check) {
      prepare(row, rule, in_place);
      wake_worker();
    }
    const std::uint64_t time = timed(submit);
    if (i >= options_.warmup) times.push_back(time);
    if (options_.check) wrong += buffers_.count_wrong(out, rule, row.count);
  }
  result.path = comm_.stats().last_path;
  const std::uint64_t sent = meeting_.sum(sent_bytes() - sent_before);
  result.sent_bytes = sent / static_cast<std::uint64_t>(calls);
  result.sent_as_expected = sent == row.expected_bytes(meeting_.world()) * static_cast<std::uint64_t>(calls);
  result.us = summary_of_slowest(times);
  if (options_.check) result.wrong = meeting_.sum(wrong);
  return result;
}

Row Measurement::all_reduce(DType dtype, ReduceOp op, std::uint64_t count) {
  Row row;
  row.count = count;
  row.bytes = count * dtype_bytes(dtype);
  row.dtype = dtype;
  row.op = op;
  row.out_of_place = measure(row, false);
  row.in_place = measure(row, true);
  return row;
}

}  // namespace ringbell::tools
