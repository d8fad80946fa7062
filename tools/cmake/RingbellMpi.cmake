# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# ringbell-perf-mpi, the ranks of `ringbell perf --against mpi`: an executable of its own, so that nothing else needs MPI.
# Built where Open MPI is found (perf starts it by Open MPI's mpirun); never a reason to fail. Not under sanitizers, which
# would judge Open MPI.
if(NOT PROJECT_IS_TOP_LEVEL OR RINGBELL_SANITIZE)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI QUIET COMPONENTS CXX)
set(is_open_mpi FALSE)
if(MPI_CXX_FOUND)
  include(CheckCXXSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
  check_cxx_symbol_exists(OPEN_MPI mpi.h RINGBELL_IS_OPEN_MPI)
  unset(CMAKE_REQUIRED_LIBRARIES)
  set(is_open_mpi ${RINGBELL_IS_OPEN_MPI})
endif()
if(NOT is_open_mpi)
  message(STATUS "ringbell: no Open MPI, perf --against mpi is not built (libopenmpi-dev openmpi-bin)")
  return()
endif()
file(GLOB mpi_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/*_mpi.cpp")
add_executable(ringbell_perf_mpi ${mpi_sources})
set_target_properties(ringbell_perf_mpi PROPERTIES OUTPUT_NAME ringbell-perf-mpi
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
target_link_libraries(ringbell_perf_mpi PRIVATE ringbell_tools ringbell_flags ringbell_text MPI::MPI_CXX)
install(TARGETS ringbell_perf_mpi RUNTIME)
