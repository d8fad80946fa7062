// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_sequence.hpp"

#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "tools/output.hpp"
#include "tools/perf_json.hpp"
#include "tools/perf_progress.hpp"
#include "tools/perf_table.hpp"
#include "tools/seat.hpp"

namespace ringbell::tools {
namespace {

constexpr double kSetUpLimitS = 120;

/// The command line as typed. Of a path only the last part: results are read on other machines.
std::string command_text(const std::vector<std::string>& arguments) {
  std::string text = "ringbell";
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == kSeatOption) {
      ++i;
      continue;
    }
    const bool path = arguments[i].substr(0, 1) == "/";
    text.append(" ").append(path ? arguments[i].substr(arguments[i].rfind('/') + 1) : arguments[i]);
  }
  return text;
}

/// A row that is wrong beyond its elements: bytes were sent twice or not at all.
std::string sent_error(const Row& row, int ranks) {
  for (const auto& measured : {row.out_of_place, row.in_place}) {
    if (measured && !measured->sent_as_expected) {
      return fmt::format("ringbell perf: {}{} bytes of {} {}: the ranks published {} bytes a call, expected {}\n",
                         row.is_ours() ? "" : row.peer + ": ", row.bytes, dtype_name(row.dtype), reduce_op_name(row.op),
                         measured->sent_bytes, row.expected_bytes(ranks, measured->path));
    }
  }
  return "";
}

void tell_skipped_sizes(const PerfOptions& options) {
  for (const DType dtype : options.dtypes) {
    for (const std::uint64_t size : options.sizes) {
      if (size >= dtype_bytes(dtype)) continue;
      complain(fmt::format("ringbell perf: note: {} bytes are below one element of {} ({} bytes): row skipped\n", size,
                           dtype_name(dtype), dtype_bytes(dtype)));
    }
  }
}

void set_path(Row& row, const PeerPath& path) {
  for (auto* const measured : {&row.out_of_place, &row.in_place}) {
    if (*measured) (*measured)->path = path;
  }
}

class Conductor {
 public:
  Conductor(const PerfOptions& options, const Subject& subject, Measurement& measurement, Turns* turns)
      : options_(options),
        subject_(subject),
        measurement_(measurement),
        turns_(turns),
        plans_(plan_rows(options)),
        progress_(plans_.size() * static_cast<std::size_t>(options.rounds) * (options.against.size() + 1)) {
    for (const PeerName& name : options.against) {
      peers_.emplace_back();
      peers_.back().name = name.name;
      peers_.back().forced = forced_environment(name);
    }
  }

  int run(const std::vector<std::string>& arguments) {
    tell_skipped_sizes(options_);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (!turns_->wait_ready(group_of(i), kSetUpLimitS)) {
        lose(i);
      } else {
        peers_[i].about = turns_->about(group_of(i));
      }
    }
    // Before anything is timed: probes would disturb it.
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      turns_->wait_probe(group_of(i), kSetUpLimitS);
      peers_[i].nvls = nvls_of(i);
    }
    print(table_header(options_, subject_, peers_));
    tell(measure_nop());
    for (std::size_t row = 0; row < plans_.size(); ++row) visit(row);
    print(table_footer(rows_, options_, subject_.ranks));
    if (total_wrong(rows_) != 0) code_ = kExitWrong;
    if (!options_.json_path.empty()) {
      replace_file(options_.json_path, json_document(rows_, peers_, options_, command_text(arguments), subject_));
    }
    if (turns_ != nullptr) turns_->close();
    return code_;
  }

 private:
  static int group_of(std::size_t peer) { return static_cast<int>(peer) + 1; }

  /// Off by the user's word, or as the probe found it.
  [[nodiscard]] std::optional<bool> nvls_of(std::size_t peer) const {
    const char* const variable = std::getenv("NCCL_NVLS_ENABLE");
    if (options_.against[peer].is_nccl() && variable != nullptr && std::string(variable) == "0") return false;
    return turns_->nvls_noted(group_of(peer));
  }

  // A row is told whole, when all rounds are through.
  void visit(std::size_t index) {
    const RowPlan& plan = plans_[index];
    Row ours = row_of(plan);
    std::vector<Row> theirs(peers_.size(), row_of(plan));
    for (int round = 0; round < options_.rounds; ++round) {
      ours.add(measure_ours(index, round));
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (!peers_[i].lost) measure_peer(i, index, round, theirs[i]);
      }
    }
    tell(ours);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].lost) continue;
      if (const auto path = turns_->path_noted(group_of(i), index)) set_path(theirs[i], *path);
      tell_peer(peers_[i], ours, theirs[i]);
    }
  }

  void show(std::size_t index, int round, const std::string& who) {
    const RowPlan& plan = plans_[index];
    std::string text = fmt::format("{} {} {} bytes", dtype_name(plan.dtype), reduce_op_name(plan.op), plan.bytes());
    if (options_.rounds > 1) text += fmt::format(", round {} of {}", round + 1, options_.rounds);
    if (!peers_.empty()) text.append(": ").append(who);
    progress_.turn(text);
  }

  Row measure_nop() {
    return in_our_turn(plans_.size(), [this] { return measurement_.nop(); });
  }

  Row measure_ours(std::size_t index, int round) {
    show(index, round, "ringbell");
    return in_our_turn(index, [&] { return measurement_.all_reduce(plans_[index]); });
  }

  template <class Body>
  Row in_our_turn(std::size_t index, Body body) {
    if (turns_ == nullptr) return body();
    turns_->give(0, static_cast<std::uint32_t>(index));
    Row row = body();
    turns_->finish(0, subject_.ranks);
    // A rank of ours that dies ends all of perf, from the launcher.
    static_cast<void>(turns_->wait_finished(0, meeting_limit_s(options_)));
    return row;
  }

  void measure_peer(std::size_t peer, std::size_t index, int round, Row& row) {
    show(index, round, peers_[peer].name);
    const int group = group_of(peer);
    turns_->give(group, static_cast<std::uint32_t>(index));  // also to one that died: it will not finish this one
    if (turns_->wait_finished(group, meeting_limit_s(options_))) {
      row.add(turns_->take(plans_[index]));
    } else {
      lose(peer);
    }
  }

  void lose(std::size_t peer) {
    peers_[peer].lost = true;
    progress_.erase();
    complain(fmt::format("ringbell perf: {}: {}: {}\n", peers_[peer].name, turns_->why(group_of(peer)),
                         peers_[peer].told ? "its rows from here on are left out" : "its rows are left out"));
    if (code_ == kExitOk) code_ = kExitEnvironment;
  }

  void tell_peer(PeerInfo& peer, const Row& ours, Row& row) {
    row.peer = peer.name;
    if (!row.refusal.empty()) {
      if (refusals_.insert(row.peer + row.refusal).second) {
        progress_.erase();
        complain(fmt::format("ringbell perf: {}: {}: these rows are left out\n", row.peer, row.refusal));
      }
      return;
    }
    if (row.out_of_place)
      row.ratio = ratio_over_rounds(ours.out_of_place->round_p50_us, row.out_of_place->round_p50_us);
    if (row.in_place) row.ratio_in_place = ratio_over_rounds(ours.in_place->round_p50_us, row.in_place->round_p50_us);
    tell(row);
    peer.told = true;
  }

  void tell(const Row& row) {
    rows_.push_back(row);
    progress_.erase();
    print(table_row(row, options_, subject_.ranks));
    const std::string error = sent_error(row, subject_.ranks);
    if (error.empty()) return;
    complain(error);
    code_ = kExitWrong;
  }

  const PerfOptions& options_;
  const Subject& subject_;
  Measurement& measurement_;
  Turns* turns_;
  const std::vector<RowPlan> plans_;
  Progress progress_;
  std::vector<PeerInfo> peers_;
  std::vector<Row> rows_;
  std::set<std::string> refusals_;  ///< that were told
  int code_ = kExitOk;
};

}  // namespace

int conduct(const PerfOptions& options, const Subject& subject, Measurement& measurement, Turns* turns,
            const std::vector<std::string>& arguments) {
  return Conductor(options, subject, measurement, turns).run(arguments);
}

void follow(const PerfOptions& options, Measurement& measurement) {
  measurement.nop();
  for (const RowPlan& plan : plan_rows(options)) {
    for (int round = 0; round < options.rounds; ++round) measurement.all_reduce(plan);
  }
}

void take_turns(const PerfOptions& options, Measurement& measurement, Meeting& meeting, Turns& turns,
                const std::string& about) {
  const int group = options.seat.group;
  const std::vector<RowPlan> plans = plan_rows(options);
  if (group != 0) {
    meeting.barrier();
    if (meeting.rank() == 0) turns.say_ready(group, about);
  }
  while (const auto index = turns.await(group)) {
    // Behind the last row is the floor, which only ringbell has.
    const Row row = *index == plans.size() ? measurement.nop() : measurement.all_reduce(plans.at(*index));
    if (group != 0 && meeting.rank() == 0) turns.put(row);
    turns.finish(group, meeting.world());
  }
}

}  // namespace ringbell::tools
