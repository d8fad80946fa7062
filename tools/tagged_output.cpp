// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/tagged_output.hpp"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "tools/output.hpp"

namespace ringbell::tools {

TaggedOutput::~TaggedOutput() {
  for (const Stream& stream : streams_) close(stream.fd);
}

void TaggedOutput::add(int fd, int target, int rank) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string prefix = std::to_string(rank);  // not "[" + ..: gcc 12 takes that for an overlapping copy
  prefix.insert(0, 1, '[').append("] ");
  streams_.push_back({fd, target, std::move(prefix), ""});
}

void TaggedOutput::add_polled(std::vector<pollfd>& polled) const {
  for (const Stream& stream : streams_) polled.push_back({stream.fd, POLLIN, 0});
}

void TaggedOutput::copy(const pollfd* polled) {
  for (std::size_t i = streams_.size(); i > 0; --i) {
    if (polled[i - 1].revents == 0) continue;
    Stream& stream = streams_[i - 1];
    if (copy_lines(stream)) continue;
    emit_partial(stream);
    close(stream.fd);
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
}

void TaggedOutput::finish() {
  for (Stream& stream : streams_) {
    copy_lines(stream);
    emit_partial(stream);
    stream.partial.clear();
  }
}

void TaggedOutput::emit_partial(const Stream& stream) {
  if (!stream.partial.empty()) write_all(stream.target, stream.prefix + stream.partial + "\n");
}

bool TaggedOutput::copy_lines(Stream& stream) {
  char buffer[8192];
  for (;;) {
    const ssize_t count = read(stream.fd, buffer, sizeof(buffer));
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    stream.partial.append(buffer, static_cast<std::size_t>(count));
    const std::size_t end = stream.partial.rfind('\n');
    if (end == std::string::npos) continue;
    std::string lines;
    for (std::size_t begin = 0; begin <= end;) {
      const std::size_t line_end = stream.partial.find('\n', begin);
      lines += stream.prefix + stream.partial.substr(begin, line_end + 1 - begin);
      begin = line_end + 1;
    }
    stream.partial.erase(0, end + 1);
    write_all(stream.target, lines);
  }
}

}  // namespace ringbell::tools
