# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# Compile flags as targets: ringbell_exact_float (numerics), ringbell_flags (warnings, sanitizers; own targets only),
# ringbell_text (Boost, fmt, spdlog, CLI11, nlohmann-json: headers only), and the source globs.

# Same bits on both executors: no contraction of a*b+c unless fma is spelled.
add_library(ringbell_exact_float INTERFACE)
target_compile_options(ringbell_exact_float INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off>")

add_library(ringbell_sanitizer INTERFACE)
if(RINGBELL_SANITIZE STREQUAL "address")
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(RINGBELL_SANITIZE STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
  # gcc warns about every atomic_thread_fence: the tool does not model them.
  target_compile_options(ringbell_sanitizer INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
elseif(RINGBELL_SANITIZE)
  message(FATAL_ERROR "RINGBELL_SANITIZE is '${RINGBELL_SANITIZE}': use address, thread or nothing")
endif()
if(RINGBELL_SANITIZE)
  target_compile_options(ringbell_sanitizer INTERFACE ${sanitizer_flags})
  target_link_options(ringbell_sanitizer INTERFACE ${sanitizer_flags})
  target_compile_definitions(ringbell_sanitizer INTERFACE RINGBELL_SANITIZE_BUILD=1)
endif()

add_library(ringbell_flags INTERFACE)
target_link_libraries(ringbell_flags INTERFACE ringbell_sanitizer)
target_compile_options(ringbell_flags INTERFACE
  # Not by CXX_STANDARD: CMake passes that on to CUDA, and 3.25 does not know C++20 for nvcc 13.
  "$<$<COMPILE_LANGUAGE:CXX>:-std=c++20;-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-Wall,-Wextra>")
# A test program uses a small part of the library that it links: without the rest, a bundle of them can be carried.
target_compile_options(ringbell_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffunction-sections,-fdata-sections>")
target_link_options(ringbell_flags INTERFACE -Wl,--gc-sections)
if(RINGBELL_WERROR)
  target_compile_options(ringbell_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()

find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers
find_package(fmt 9 CONFIG REQUIRED)
find_package(spdlog 1.10 CONFIG REQUIRED)
find_package(CLI11 2 CONFIG REQUIRED)
find_package(nlohmann_json 3.9 CONFIG REQUIRED)
add_library(ringbell_text INTERFACE)
target_compile_definitions(ringbell_text INTERFACE FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
foreach(library Boost::headers fmt::fmt-header-only spdlog::spdlog_header_only CLI11::CLI11 nlohmann_json::nlohmann_json)
  target_include_directories(ringbell_text SYSTEM INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>>)
endforeach()

# ringbell_glob(OUT FOLDER...): the folders' own sources for this configuration (see CMakeLists.txt for the suffixes).
function(ringbell_glob out)
  set(sources)
  foreach(folder IN LISTS ARGN)
    file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
    if(RINGBELL_WITH_CUDA)
      list(FILTER found EXCLUDE REGEX "_stub\\.cpp$")
      file(GLOB cuda CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cu")
      list(APPEND found ${cuda})
    else()
      list(FILTER found EXCLUDE REGEX "_cuda\\.cpp$")
    endif()
    list(APPEND sources ${found})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
