// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell-perf-mpi: one rank of `ringbell perf --against mpi`. perf starts it by mpirun with perf's own arguments; it
// finds its seat through perf's /proc folder. Only this file knows MPI, and only this executable links it.
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"
#include "tools/options.hpp"
#include "tools/output.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_cache.hpp"
#include "tools/perf_measure.hpp"
#include "tools/perf_sequence.hpp"
#include "tools/seat.hpp"

namespace ringbell::tools {
namespace {

/// MPI_DATATYPE_NULL: MPI has none such.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return MPI_FLOAT;
    case DType::kFloat64: return MPI_DOUBLE;
    case DType::kInt8: return MPI_INT8_T;
    case DType::kUInt8: return MPI_UINT8_T;
    case DType::kInt32: return MPI_INT32_T;
    case DType::kUInt32: return MPI_UINT32_T;
    case DType::kInt64: return MPI_INT64_T;
    case DType::kUInt64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    default: return MPI_OP_NULL;
  }
}

class MpiPeer final : public Peer {
 public:
  using Peer::refusal;
  [[nodiscard]] std::string refusal(DType dtype, ReduceOp op, std::uint64_t count) const override {
    if (mpi_type(dtype) == MPI_DATATYPE_NULL) return std::string("MPI has no ") + dtype_name(dtype);
    if (mpi_op(op) == MPI_OP_NULL) return std::string("MPI has no ") + reduce_op_name(op);
    if (count > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      return "MPI counts to 2147483647 elements, not " + std::to_string(count);
    }
    return "";
  }

  /// MPI leaves the overflow of integers open, and Open MPI's vector code adds 8-bit ones with saturation.
  [[nodiscard]] bool exact(DType dtype, ReduceOp op, int /*ranks*/) const override {
    return op != ReduceOp::kSum || (dtype != DType::kInt8 && dtype != DType::kUInt8);
  }

  void prepare(const PeerCall& call) override {
    type_ = mpi_type(call.dtype);
    op_ = mpi_op(call.op);
  }

  Status call(const PeerCall& call) noexcept override {
    const void* const in = call.in == call.out ? MPI_IN_PLACE : call.in;
    error_ = MPI_Allreduce(in, call.out, static_cast<int>(call.count), type_, op_, MPI_COMM_WORLD);
    return error_ == MPI_SUCCESS ? Status::kOk : Status::kSystem;
  }

  [[nodiscard]] ExitError failure(Status /*status*/) const override {
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    MPI_Error_string(error_, text, &length);
    return {kExitEnvironment, std::string("MPI_Allreduce: ") + text};
  }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
  int error_ = MPI_SUCCESS;
};

/// "Open MPI v4.1.4".
std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all = text;
  return all.substr(0, all.find(','));
}

void measure(const PerfOptions& options, int rank, int world, Turns& turns) {
  const std::unique_ptr<Buffers> buffers = make_cpu_buffers(region_bytes(options), options.l2 != L2State::kWarm);
  const std::unique_ptr<Meeting> meeting = take_seat(options, rank, world);
  MpiPeer peer;
  Measurement measurement(peer, *buffers, *meeting, options, nullptr, [&] { turns.beat(options.seat.group); });
  try {
    take_turns(options, measurement, *meeting, turns, library_version());
  } catch (const ExitError& error) {
    turns.fail(options.seat.group, "rank " + std::to_string(rank) + ": " + error.what());
    meeting->fail(error.code());
    throw;
  }
}

/// @return the exit code
int run(int argc, const char* const* argv) {
  const PerfOptions options = read_command_line(argc, argv).perf;
  if (options.seat.turns_fd < 0) throw UsageError("ringbell-perf-mpi is started by: ringbell perf --against mpi");
  int rank = 0;
  int world = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const std::unique_ptr<Turns> turns = join_turns(options);
  try {
    measure(options, rank, world, *turns);
  } catch (const std::bad_alloc&) {
    turns->fail(options.seat.group, "not enough memory for the buffers: take a smaller -e");
    return kExitEnvironment;
  } catch (const ExitError& error) {
    turns->fail(options.seat.group, "rank " + std::to_string(rank) + ": " + error.what());
    throw;
  }
  return kExitOk;
}

}  // namespace
}  // namespace ringbell::tools

int main(int argc, char** argv) {
  using namespace ringbell::tools;  // NOLINT
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&argc, &argv);
  int code = kExitBroken;
  try {
    code = run(argc, argv);
  } catch (const ExitError& error) {
    complain(std::string("ringbell-perf-mpi: ") + error.what() + "\n");
    code = error.code();
  }
  if (code != kExitOk) _exit(code);  // mpirun ends the other ranks; MPI_Finalize would wait for them
  MPI_Finalize();
  return code;
}
