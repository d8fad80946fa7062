# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# Uses ccache when it is there and can write its cache; never a reason to fail.
option(RINGBELL_CCACHE "Compile through ccache when it works here" ON)
if(RINGBELL_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED RINGBELL_CCACHE_WORKS)
  find_program(RINGBELL_CCACHE_PROGRAM ccache)
  mark_as_advanced(RINGBELL_CCACHE_PROGRAM)
  set(works FALSE)
  if(RINGBELL_CCACHE_PROGRAM)
    file(WRITE "${PROJECT_BINARY_DIR}/CMakeFiles/ccache_probe.cpp" "int probe;\n")
    execute_process(
      COMMAND "${RINGBELL_CCACHE_PROGRAM}" "${CMAKE_CXX_COMPILER}" -c "${PROJECT_BINARY_DIR}/CMakeFiles/ccache_probe.cpp"
        -o "${PROJECT_BINARY_DIR}/CMakeFiles/ccache_probe.o"
      RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(works TRUE)
    endif()
  endif()
  set(RINGBELL_CCACHE_WORKS ${works} CACHE INTERNAL "")
endif()
if(RINGBELL_CCACHE AND RINGBELL_CCACHE_WORKS AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${RINGBELL_CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${RINGBELL_CCACHE_PROGRAM}")
endif()
