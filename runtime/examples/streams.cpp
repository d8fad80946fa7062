// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The three ways to issue a call, on CPUs: `ringbell run -n 2 -- ./streams`. With CUDA a cudaStream_t takes the
// HostStream's place, a kernel that of launch(), and a CUDA graph that of capture and replay.
#include <cstdio>
#include <exception>
#include <vector>

#include <ringbell.hpp>

using ringbell::Communicator;
using ringbell::DType;
using ringbell::HostGraph;
using ringbell::HostStream;
using ringbell::ReduceOp;
using ringbell::Status;

namespace {

int failed(const Communicator& comm) {
  std::fprintf(stderr, "%s\n", comm.last_error().c_str());
  return 1;
}

int run() {
  Communicator comm = Communicator::from_env({.device = ringbell::DeviceKind::kCpu});
  const auto sum = static_cast<float>(comm.world() * (comm.world() + 1)) / 2;
  std::vector<float> data(256);
  HostStream stream;
  const auto produce = [&] { data.assign(data.size(), static_cast<float>(comm.rank() + 1)); };

  // After a stream: the call runs when the stream has produced its input; host code waits for the result.
  stream.launch(produce);
  const ringbell::CallOptions after{.after = &stream};
  const auto ticket = comm.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, ReduceOp::kSum, after);
  if (comm.wait(ticket) != Status::kOk) return failed(comm);
  if (data.back() != sum) return 1;

  // On a stream: what produces, reduces and consumes is ordered by the stream alone.
  float seen = 0;
  stream.launch(produce);
  if (comm.all_reduce_on(&stream, data.data(), data.data(), data.size(), DType::kFloat32) != Status::kOk)
    return failed(comm);
  stream.launch([&] { seen = data.back(); });
  if (comm.check(&stream) != Status::kOk) return failed(comm);
  if (seen != sum) return 1;

  // In a graph: captured once, replayed with whatever the input holds then.
  stream.begin_capture();
  stream.launch(produce);
  const Status captured = comm.all_reduce_on(&stream, data.data(), data.data(), data.size(), DType::kFloat32);
  const HostGraph graph = stream.end_capture();
  if (captured != Status::kOk) return failed(comm);
  for (int replay = 0; replay < 3; ++replay) stream.replay(graph);
  if (comm.check(&stream) != Status::kOk) return failed(comm);
  std::printf("rank %d of %d: %g after a stream, on it, and from a graph\n", comm.rank(), comm.world(),
              static_cast<double>(data.back()));
  return data.back() == sum ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
