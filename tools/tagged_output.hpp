// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks' output in whole lines with the rank before each: `ringbell run --tag`.
#ifndef RINGBELL_TOOLS_TAGGED_OUTPUT_HPP_
#define RINGBELL_TOOLS_TAGGED_OUTPUT_HPP_

#include <string>
#include <vector>

#include <poll.h>

namespace ringbell::tools {

/// One thread.
class TaggedOutput {
 public:
  TaggedOutput() = default;
  ~TaggedOutput();
  TaggedOutput(const TaggedOutput&) = delete;
  TaggedOutput& operator=(const TaggedOutput&) = delete;

  /// @param fd reading end, this object's from now on  @param target where the lines go
  void add(int fd, int target, int rank);
  /// Appends what to poll.
  void add_polled(std::vector<pollfd>& polled) const;
  /// @param polled what add_polled appended, after a poll
  void copy(const pollfd* polled);
  /// All that is left, when the ranks are gone.
  void finish();

 private:
  struct Stream {
    int fd;
    int target;
    std::string prefix;
    std::string partial;
  };
  /// @return false at the end of the stream
  static bool copy_lines(Stream& stream);
  static void emit_partial(const Stream& stream);

  std::vector<Stream> streams_;
};

}  // namespace ringbell::tools

#endif  // RINGBELL_TOOLS_TAGGED_OUTPUT_HPP_
