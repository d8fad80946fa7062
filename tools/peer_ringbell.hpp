// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// ringbell itself as perf measures it.
#ifndef RINGBELL_TOOLS_PEER_RINGBELL_HPP_
#define RINGBELL_TOOLS_PEER_RINGBELL_HPP_

#include "tools/peer.hpp"

namespace ringbell::tools {

/// The end of perf for a call that failed. Its text is empty when stderr has it already.
ExitError call_error(const Communicator& comm, Status status);

class RingbellPeer final : public Peer {
 public:
  explicit RingbellPeer(Communicator& comm) : comm_(comm) {}
  Status call(const PeerCall& call) noexcept override;
  Status nop() noexcept override;
  using Peer::refusal;
  [[nodiscard]] std::string refusal(IssueWay /*way*/) const override { return ""; }
  void use(WorkStream& work) override { work_ = &work; }
  Status enqueue(const PeerCall& call) noexcept override;
  Status call_after(const PeerCall& call) noexcept override;
  Status enqueued() noexcept override { return comm_.check(work_->get()); }
  [[nodiscard]] ExitError failure(Status status) const override { return call_error(comm_, status); }
  [[nodiscard]] PeerPath path() const override;
  [[nodiscard]] std::optional<std::uint64_t> launches() const override { return comm_.stats().launches; }
  [[nodiscard]] std::optional<std::uint64_t> sent_bytes() const override;

 private:
  Communicator& comm_;
  WorkStream* work_ = nullptr;
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_PEER_RINGBELL_HPP_
