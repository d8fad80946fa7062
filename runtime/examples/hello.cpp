// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The smallest program: `ringbell run -n 2 -- ./hello`. Every rank adds its vector to the others'.
#include <cstdio>
#include <vector>

#include <ringbell.hpp>

int main() {
  ringbell::Communicator comm = ringbell::Communicator::from_env({.device = ringbell::DeviceKind::kCpu});
  std::vector<float> data(1024, static_cast<float>(comm.rank() + 1));
  const ringbell::Ticket ticket = comm.all_reduce(data.data(), data.data(), data.size(), ringbell::DType::kFloat32);
  if (comm.wait(ticket) != ringbell::Status::kOk) {
    std::fprintf(stderr, "%s\n", comm.last_error().c_str());
    return 1;
  }
  std::printf("rank %d of %d: %g\n", comm.rank(), comm.world(), static_cast<double>(data[0]));
  return data.back() == static_cast<float>(comm.world() * (comm.world() + 1)) / 2 ? 0 : 1;
}
