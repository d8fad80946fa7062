# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# generated/runtime/version.hpp from runtime/version.hpp.in. Looked at in every build, written only when it changes, so
# that a new commit recompiles its includers and nothing else. As a script (-P) it is the step that writes.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "unknown")
  set(dirty false)
  find_program(git git)
  if(git)
    # The folder's own repository only: an unpacked archive inside somebody else's repository has no commit.
    execute_process(COMMAND "${git}" -C "${SOURCE}" rev-parse --show-cdup HEAD
      OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE result)
    if(result EQUAL 0 AND answer MATCHES "^\n?([0-9a-f]+)\n$")
      set(commit "${CMAKE_MATCH_1}")
      execute_process(
        COMMAND "${git}" -C "${SOURCE}" status --porcelain -- CMakeLists.txt device host runtime tools
        OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes)
        set(dirty true)
      endif()
    endif()
  endif()
  configure_file("${SOURCE}/runtime/version.hpp.in" "${OUTPUT}" @ONLY)
  return()
endif()

set(version_header "${PROJECT_BINARY_DIR}/generated/runtime/version.hpp")
if(RINGBELL_WITH_CUDA)
  set(version_cuda "${CMAKE_CUDA_COMPILER_VERSION}")
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " version_architectures)
else()
  set(version_cuda "none")
  set(version_architectures "none")
endif()
set(version_build_type "${CMAKE_BUILD_TYPE}")
if(RINGBELL_SANITIZE)
  string(APPEND version_build_type "+${RINGBELL_SANITIZE}")
endif()
set(version_command "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${version_header}"
  -Dversion=${PROJECT_VERSION} -Dversion_major=${PROJECT_VERSION_MAJOR} -Dversion_minor=${PROJECT_VERSION_MINOR}
  -Dversion_patch=${PROJECT_VERSION_PATCH} "-Dcuda=${version_cuda}" "-Darchitectures=${version_architectures}"
  "-Dbuild_type=${version_build_type}" "-Dcompiler=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  -P "${CMAKE_CURRENT_LIST_FILE}")
add_custom_target(ringbell_version COMMAND ${version_command} BYPRODUCTS "${version_header}"
  COMMENT "version header" VERBATIM)
