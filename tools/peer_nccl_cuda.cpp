// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include "tools/exit_codes.hpp"
#include "tools/nccl_library.hpp"
#include "tools/nccl_log.hpp"
#include "tools/own_core.hpp"
#include "tools/peer_nccl.hpp"
#include "tools/perf_buffers.hpp"
#include "tools/perf_cache.hpp"
#include "tools/perf_measure.hpp"
#include "tools/perf_sequence.hpp"
#include "tools/seat.hpp"

namespace ringbell::tools {
namespace {

std::string words_of(const NcclLibrary& nccl, int error, NcclComm comm, const char* what) {
  const char* const last = nccl.call.get_last_error(comm);
  std::string text = fmt::format("{}: {}", what, nccl.call.get_error_string(error));
  if (last != nullptr && *last != 0) text.append(": ").append(last);
  return text;
}

void check(const NcclLibrary& nccl, int error, NcclComm comm, const char* what) {
  if (error != kNcclOk) throw ExitError(kExitEnvironment, words_of(nccl, error, comm, what));
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw ExitError(kExitEnvironment, fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

/// A communicator and a stream of its own. The device is current on the calling thread.
class NcclPeer final : public Peer {
 public:
  NcclPeer(const NcclLibrary& nccl, Meeting& meeting, int device) : nccl_(nccl) {
    check(cudaDeviceGetAttribute(&capability_major_, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    NcclId id{};
    if (meeting.rank() == 0) check(nccl_, nccl_.call.get_unique_id(&id), nullptr, "ncclGetUniqueId");
    std::vector<std::uint64_t> words(std::begin(id.words), std::end(id.words));
    meeting.maximum(words);  // rank 0's: the others' are zeros
    std::copy(words.begin(), words.end(), id.words);
    check(nccl_, nccl_.call.comm_init_rank(&comm_, meeting.world(), id, meeting.rank()), nullptr, "ncclCommInitRank");
  }

  // Destroying waits for the other ranks, which may be gone after a failure.
  ~NcclPeer() override {
    if (comm_ != nullptr) static_cast<void>(nccl_.call.comm_abort(comm_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  NcclPeer(const NcclPeer&) = delete;
  NcclPeer& operator=(const NcclPeer&) = delete;

  /// By all ranks, at the end of a run without failure.
  void leave() {
    for (const NcclWindow window : windows_) static_cast<void>(nccl_.call.window_deregister(comm_, window));
    static_cast<void>(nccl_.call.comm_destroy(comm_));
    comm_ = nullptr;
  }

  /// By all ranks: memory of ncclMemAlloc becomes a symmetric window.
  void register_window(void* data, std::uint64_t bytes) {
    windows_.push_back(nullptr);
    check(nccl_, nccl_.call.window_register(comm_, data, bytes, &windows_.back(), kNcclWindowSymmetric), comm_,
          "ncclCommWindowRegister");
    if (windows_.back() == nullptr) {
      throw ExitError(kExitEnvironment,
                      "NCCL registers no symmetric windows here: it needs P2P between all GPUs and "
                      "CUDA's virtual memory (NCCL_CUMEM_ENABLE=1)");
    }
  }

  [[nodiscard]] std::string refusal(DType dtype, ReduceOp /*op*/, std::uint64_t /*count*/) const override {
    if (!is_float8(dtype)) return "";
    if (nccl_.version < kNcclWithFloat8) {
      return fmt::format("NCCL {} has no {}", nccl_version_text(nccl_.version), dtype_name(dtype));
    }
    constexpr int kHopper = 9;
    return capability_major_ < kHopper ? fmt::format("NCCL has no {} on GPUs before sm_90", dtype_name(dtype)) : "";
  }
  [[nodiscard]] bool exact(DType dtype, ReduceOp op, int ranks) const override {
    return nccl_is_exact(dtype, op, ranks);
  }

  [[nodiscard]] std::string refusal(IssueWay /*way*/) const override { return ""; }
  void use(WorkStream& work) override { work_ = &work; }
  Status enqueue(const PeerCall& call) noexcept override {
    error_ = nccl_.call.all_reduce(call.in, call.out, call.count, type_, op_, comm_,
                                   static_cast<cudaStream_t>(work_->get()));
    return error_ == kNcclOk ? Status::kOk : Status::kSystem;
  }
  // NCCL's calls are always behind a stream; the host's part is to wait for it.
  Status call_after(const PeerCall& call) noexcept override {
    const Status status = enqueue(call);
    return status == Status::kOk ? spin(static_cast<cudaStream_t>(work_->get())) : status;
  }

  void prepare(const PeerCall& call) override {
    type_ = nccl_type(call.dtype);
    op_ = nccl_op(call.op);
  }

  // On the host's clock as ours is: the call, then spinning until the stream is through.
  Status call(const PeerCall& call) noexcept override {
    error_ = nccl_.call.all_reduce(call.in, call.out, call.count, type_, op_, comm_, stream_);
    return error_ == kNcclOk ? spin(stream_) : Status::kSystem;
  }

  [[nodiscard]] ExitError failure(Status /*status*/) const override {
    if (error_ != kNcclOk) return {kExitEnvironment, words_of(nccl_, error_, comm_, "ncclAllReduce")};
    return {kExitEnvironment, fmt::format("ncclAllReduce's kernel: {}", cudaGetErrorString(cuda_error_))};
  }

 private:
  Status spin(cudaStream_t stream) noexcept {
    do {
      cuda_error_ = cudaStreamQuery(stream);
    } while (cuda_error_ == cudaErrorNotReady);
    return cuda_error_ == cudaSuccess ? Status::kOk : Status::kSystem;
  }

  const NcclLibrary& nccl_;
  NcclComm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  WorkStream* work_ = nullptr;
  std::vector<NcclWindow> windows_;
  int capability_major_ = 0;
  int type_ = 0;
  int op_ = 0;
  int error_ = kNcclOk;
  cudaError_t cuda_error_ = cudaSuccess;
};

DeviceMemory memory_of(const NcclLibrary& nccl) {
  return {[&nccl](std::uint64_t bytes) {
            void* data = nullptr;
            check(nccl, nccl.call.mem_alloc(&data, bytes), nullptr, "ncclMemAlloc of perf's buffers");
            return data;
          },
          [&nccl](void* data) { static_cast<void>(nccl.call.mem_free(data)); }};
}

/// This process's log: the launcher has set NCCL_DEBUG_FILE with %p for the process.
std::string log_path() {
  const char* const variable = std::getenv("NCCL_DEBUG_FILE");
  std::string path = variable != nullptr ? variable : "";
  const std::size_t place = path.find("%p");
  if (place != std::string::npos) path.replace(place, 2, std::to_string(getpid()));
  return path;
}

std::string text_from(const std::string& path, std::streamoff begin) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(begin);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One call for each row, and what came into the log meanwhile. Values do not matter.
void probe(const PerfOptions& options, NcclPeer& peer, const Buffers& buffers, Meeting& meeting, Turns& turns) {
  const std::string path = log_path();
  const std::vector<RowPlan> plans = plan_rows(options);
  for (std::size_t row = 0; row < plans.size(); ++row) {
    const RowPlan& plan = plans[row];
    if (!peer.refusal(plan.dtype, plan.op, plan.count).empty()) continue;
    const auto before = static_cast<std::streamoff>(text_from(path, 0).size());
    const PeerCall call{buffers.in(), buffers.out(), plan.count, plan.dtype, plan.op};
    peer.prepare(call);
    const Status status = peer.call(call);
    if (status != Status::kOk) throw peer.failure(status);
    if (meeting.rank() != 0) continue;
    if (const auto said = nccl_path(text_from(path, before))) turns.note_path(options.seat.group, row, *said);
  }
  if (meeting.rank() != 0) return;
  if (const auto nvls = nccl_nvls(text_from(path, 0))) turns.note_nvls(options.seat.group, *nvls);
}

}  // namespace

void nccl_rank(const PerfOptions& options, const session::Place& place, int device, Turns& turns) {
  const bool symmetric =
      options.against[static_cast<std::size_t>(options.seat.group) - 1].kind == PeerKind::kNcclSymmetric;
  const std::unique_ptr<Meeting> meeting = take_seat(options, place.rank, place.world);
  const NcclLibrary nccl = open_nccl(kNcclFile, symmetric ? kNcclWithWindows : kNcclOldest);
  try {
    check(cudaSetDevice(device), "cudaSetDevice");
    const std::unique_ptr<Buffers> buffers = make_cuda_buffers(
        device, region_bytes(options), options.l2 != L2State::kWarm, symmetric ? memory_of(nccl) : DeviceMemory{});
    NcclPeer peer(nccl, *meeting, device);
    if (symmetric) {
      buffers->select(0);
      peer.register_window(buffers->in(), buffers->region_bytes());
      peer.register_window(buffers->out(), buffers->region_bytes());
    }
    if (options.seat.probe) {
      probe(options, peer, *buffers, *meeting, turns);
    } else {
      const auto work = any_needs_stream(options) ? make_cuda_work_stream() : nullptr;
      stay_on_own_core(meeting->rank(), meeting->world());
      Measurement measurement(peer, *buffers, *meeting, options, work.get(), [&] { turns.beat(options.seat.group); });
      take_turns(options, measurement, *meeting, turns, "NCCL " + nccl_version_text(nccl.version));
    }
    meeting->barrier();
    peer.leave();
  } catch (const ExitError& error) {
    meeting->fail(error.code());
    throw;
  }
}

}  // namespace ringbell::tools
