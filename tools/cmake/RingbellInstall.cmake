# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# libringbell.so, the flat public headers (runtime/ringbell.hpp, device/ringbell_*.hpp, host/ringbell_*.hpp) and the CMake package. The headers
# are written flat (an include of device/ringbell_types.hpp becomes ringbell_types.hpp) into the build folder and installed from there. As a script (-P)
# it is the step that flattens one header.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" text)
  string(REGEX REPLACE "#include \"(device|host|runtime)/([A-Za-z0-9_]+\\.hp?p?)\"" "#include \"\\2\"" text "${text}")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(flat_folder "${PROJECT_BINARY_DIR}/include")
set(flat_headers)
file(GLOB public_headers CONFIGURE_DEPENDS device/ringbell_*.hpp host/ringbell_*.hpp runtime/ringbell.hpp runtime/ringbell.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header FILENAME name)
  add_custom_command(OUTPUT "${flat_folder}/${name}"
    COMMAND "${CMAKE_COMMAND}" "-DINPUT=${header}" "-DOUTPUT=${flat_folder}/${name}" -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS "${header}" "${CMAKE_CURRENT_LIST_FILE}" VERBATIM)
  list(APPEND flat_headers "${flat_folder}/${name}")
endforeach()
add_custom_target(ringbell_flat_headers DEPENDS ${flat_headers})

set(version_script "${PROJECT_SOURCE_DIR}/tools/cmake/ringbell.map")
add_library(ringbell_shared SHARED $<TARGET_OBJECTS:ringbell_objects>)
add_library(ringbell::ringbell ALIAS ringbell_shared)
add_dependencies(ringbell_shared ringbell_flat_headers)
set_target_properties(ringbell_shared PROPERTIES OUTPUT_NAME ringbell EXPORT_NAME ringbell LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS "${version_script}"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
target_compile_features(ringbell_shared INTERFACE cxx_std_20)
target_include_directories(ringbell_shared INTERFACE
  "$<BUILD_INTERFACE:${flat_folder}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
# Bind own calls inside the library; leave no undefined name for the loader to find out (sanitizers need theirs late).
target_link_options(ringbell_shared PRIVATE "-Wl,--version-script=${version_script}" -Wl,--as-needed
  -Wl,-Bsymbolic-functions $<$<STREQUAL:${RINGBELL_SANITIZE},>:-Wl,--no-undefined>)
target_link_libraries(ringbell_shared PRIVATE
  $<BUILD_INTERFACE:ringbell_cuda_runtime> $<BUILD_INTERFACE:ringbell_sanitizer>)

install(TARGETS ringbell_shared EXPORT ringbell LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${flat_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ringbell NAMESPACE ringbell:: FILE ringbellTargets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ringbell)
file(WRITE "${PROJECT_BINARY_DIR}/package/ringbellConfig.cmake"
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/ringbellTargets.cmake\")\n")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/ringbellConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/ringbellConfig.cmake" "${PROJECT_BINARY_DIR}/package/ringbellConfigVersion.cmake"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ringbell)
