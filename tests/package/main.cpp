// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// The smallest user of an installed ringbell: a world of one, a call, and an exception caught across the library.
#include <ringbell.hpp>

int main() {
  ringbell::Config config;
  config.device = ringbell::DeviceKind::kCpu;
  ringbell::Communicator comm(ringbell::unique_id_create(), 0, 1, config);
  const float in[3] = {1, 2, 3};
  float out[3] = {};
  if (comm.wait(comm.all_reduce(in, out, 3, ringbell::DType::kFloat32)) != ringbell::Status::kOk || out[2] != 3)
    return 1;
  try {
    ringbell::Communicator nobody(ringbell::unique_id_create(), 1, 1, config);
  } catch (const ringbell::Error& error) {
    return error.status() == ringbell::Status::kInvalidArgument ? 0 : 2;
  }
  return 3;
}
