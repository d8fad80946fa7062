// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "runtime/flight_dump.hpp"

#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "host/error.hpp"
#include "host/log.hpp"
#include "runtime/command_json.hpp"

namespace ringbell {
namespace {

using Json = nlohmann::ordered_json;

Json rank_or_null(int rank) { return rank < 0 ? Json(nullptr) : Json(rank); }

Json record_json(const FlightRecord& record, std::uint64_t completed) {
  const device::Command& command = record.command;
  // A call that completed before anybody asked for it has no time.
  const bool unseen = record.status == Status::kPending && record.seq < completed;
  Json json = command_json(record.seq, command);
  json["channels"] = command.channels;
  json["submitted_ns"] = record.submitted_ns;
  json["seen_ns"] = record.seen_ns == 0 ? Json(nullptr) : Json(record.seen_ns);
  json["status"] = status_name(unseen ? Status::kOk : record.status);
  return json;
}

void warn(const std::string& folder, int error) noexcept {
  try {
    host::log_once("dump folder", host::LogLevel::kWarn,
                   fmt::format("RINGBELL_DUMP_DIR='{}' takes no dumps: {}; name a folder that exists and is writable",
                               folder, host::errno_text(error)));
  } catch (...) {
    // No memory for a warning.
  }
}

/// @return 0 or errno
int write_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.new", path);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = 0;
  for (std::size_t done = 0; done < text.size() && error == 0;) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary.c_str());
  return error;
}

}  // namespace

std::string dump_text(const FlightDump& dump) {
  const FailureFacts& failure = dump.failure;
  Json records = Json::array();
  for (const FlightRecord& record : dump.records) records.push_back(record_json(record, dump.completed));
  const Json json{{"schema", kDumpSchema},
                  {"kind", kDumpKind},
                  {"version", dump.version},
                  {"session", dump.session},
                  {"rank", dump.rank},
                  {"world", dump.world},
                  {"pid", dump.pid},
                  {"dumped_ns", dump.dumped_ns},
                  {"submitted", dump.submitted},
                  {"completed", dump.completed},
                  {"stream_calls", dump.stream_calls},
                  {"failure",
                   {{"status", status_name(failure.status)},
                    {"seq", failure.seq},
                    {"launched", failure.launched},
                    {"reporter", rank_or_null(failure.reporter)},
                    {"peer", rank_or_null(failure.peer)},
                    {"step", failure.step},
                    {"awaited", failure.awaited.empty() ? Json(nullptr) : Json(failure.awaited)},
                    {"text", failure.text}}},
                  {"records", records}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string dump_file_name(const FlightDump& dump) {
  const std::size_t dash = dump.session.rfind('-');
  return fmt::format("ringbell-{}-rank{}-{}.json", dash == std::string::npos ? "" : dump.session.substr(dash + 1),
                     dump.rank, dump.pid);
}

void check_dump_folder(const std::string& folder) noexcept {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return warn(folder, errno);
  if (!S_ISDIR(info.st_mode)) return warn(folder, ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) warn(folder, errno);
}

void write_dump(const std::string& folder, const FlightDump& dump) noexcept {
  try {
    const std::string path = fmt::format("{}/{}", folder, dump_file_name(dump));
    const int error = write_file(path, dump_text(dump));
    if (error != 0) return warn(folder, error);
    host::log_message(host::LogLevel::kInfo, fmt::format("wrote {}", path));
  } catch (...) {
    warn(folder, ENOMEM);
  }
}

}  // namespace ringbell
