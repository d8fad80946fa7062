// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// `ringbell clean`: what sessions that died left behind, one line each, removed. What may be removed is judged in
// host/.
#include <sstream>
#include <string>
#include <vector>

#include "runtime/session.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/output.hpp"
#include "tools/temporary_folder.hpp"

namespace ringbell::tools {
namespace {

const char* fate_of(const session::Object& object, bool dry_run) {
  if (object.removed) return "removed";
  return dry_run && object.dead ? "would remove" : "kept";
}

std::vector<session::Object> clean_objects(const CleanOptions& options) {
  try {
    auto objects = session::clean(options.session, !options.dry_run);
    if (options.session) return objects;
    const auto folders = clean_temporary_folders(!options.dry_run);
    objects.insert(objects.end(), folders.begin(), folders.end());
    return objects;
  } catch (const Error& error) {
    if (error.status() != Status::kInvalidArgument) throw;
    throw UsageError(std::string("--session: ") + error.what());
  }
}

}  // namespace

int clean_command(const CleanOptions& options) {
  std::ostringstream text;
  int code = kExitOk;
  for (const session::Object& object : clean_objects(options)) {
    text << fate_of(object, options.dry_run) << " " << object.path << " " << object.bytes << " bytes, " << object.state
         << ": " << object.why << "\n";
    if (object.in_the_way) code = kExitWrong;
  }
  print(text.str());
  return code;
}

}  // namespace ringbell::tools
