# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build into an empty prefix, then configures, builds and runs the consumer against that alone.
set(prefix "${BUILD}/package-test/prefix")
set(consumer "${BUILD}/package-test/consumer")
file(REMOVE_RECURSE "${BUILD}/package-test")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}" COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/include/*")
message("headers: ${installed}")
foreach(header IN LISTS installed)
  if(NOT header MATCHES "^include/ringbell[a-z_]*\\.hp?p?$")
    message(FATAL_ERROR "${header} is installed, but public headers are flat and named ringbell*")
  endif()
endforeach()
execute_process(
  COMMAND "${CTEST}" --build-and-test "${SOURCE}" "${consumer}" --build-generator Ninja --build-noclean
    --build-options "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
    --test-command "${CTEST}" --output-on-failure --no-tests=error
  COMMAND_ERROR_IS_FATAL ANY)
