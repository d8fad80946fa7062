# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# What quickstart, test, bundle and .ci/run share: finding and installing packages, configuring and building. Sourced,
# never run. Sets ROOT and changes to it.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT" || exit 3

BUILD_PACKAGES=(g++ cmake ninja-build libboost-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev)
TEST_PACKAGES=(libgtest-dev python3)
PEER_PACKAGES=(libopenmpi-dev openmpi-bin)  # perf --against mpi: built where they are, asked for by nobody but CI
MODEL_PACKAGES=(spin)  # tests/models: skipped where it is not, asked for by nobody but CI
LINT_PACKAGES=(clang-format clang-tidy codespell shellcheck)
ASSUME_YES="${ASSUME_YES:-0}"

die() {  # die CODE TEXT...
  local code="$1"
  shift
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit "$code"
}

have_header() {
  local prefix
  for prefix in /usr/include /usr/local/include; do
    [ -e "$prefix/$1" ] && return 0
  done
  return 1
}

# A package counts as there when what it brings is there, whoever brought it.
have_package() {
  case "$1" in
    g++) command -v g++ ;;
    cmake) command -v cmake ;;
    ninja-build) command -v ninja ;;
    python3) command -v python3 ;;
    clang-format | clang-tidy | codespell | shellcheck | spin) command -v "$1" ;;
    libboost-dev) have_header boost/version.hpp ;;
    libfmt-dev) have_header fmt/format.h ;;
    libspdlog-dev) have_header spdlog/spdlog.h ;;
    libcli11-dev) have_header CLI/CLI.hpp ;;
    nlohmann-json3-dev) have_header nlohmann/json.hpp ;;
    libopenmpi-dev) command -v mpicxx ;;
    openmpi-bin) command -v mpirun ;;
    libgtest-dev) have_header gtest/gtest.h ;;
    *) die 2 "have_package: '$1' is unknown" ;;
  esac > /dev/null 2>&1
}

# Installs what is missing of the packages named; exit 3 with the command printed when that is not allowed.
need_packages() {
  local missing=() package as_root=() answer
  for package in "$@"; do
    have_package "$package" || missing+=("$package")
  done
  if [ "${#missing[@]}" -eq 0 ]; then
    return 0
  fi
  local install="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  printf 'missing: %s\nto install, as root:\n  %s\n' "${missing[*]}" "$install"
  command -v apt-get > /dev/null || die 3 "there is no apt-get here: install them with this system's package manager"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || die 3 "not root and no sudo: have the line above run, then start again"
    if [ -t 0 ] || sudo -n true 2> /dev/null; then
      as_root=(sudo)
    else
      die 3 "sudo asks for a password and there is no terminal: have the line above run, then start again"
    fi
  fi
  if [ "$ASSUME_YES" != 1 ] && [ -t 0 ]; then
    read -r -p 'run it now? [y/N] ' answer
    case "$answer" in
      y | Y | yes) ;;
      *) die 3 "not installed: run the line above, then start again" ;;
    esac
  fi
  "${as_root[@]}" apt-get -q update || printf 'apt-get update failed; trying to install all the same\n' >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" < /dev/null ||
    die 3 "apt-get could not install: ${missing[*]}"
  for package in "${missing[@]}"; do
    have_package "$package" || die 3 "$package is installed but what it brings was not found"
  done
}

# configure PRESET [-DNAME=VALUE...]: once; afterwards ninja configures again by itself when a CMake file changes.
configure() {
  local preset="$1" folder="$ROOT/build/$1" fresh=() setting stale=0 name value
  shift
  local version
  version="$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')"
  if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    die 3 "cmake is $version, 3.25 or newer is needed"
  fi
  mkdir -p "$folder" 2> /dev/null
  if [ ! -w "$folder" ] || { [ -e "$folder/build.ninja" ] && [ ! -w "$folder/build.ninja" ]; }; then
    die 3 "$folder is not writable for $(id -un): another user built here; remove it or use an own clone"
  fi
  if [ -e "$folder/CMakeCache.txt" ]; then
    # A build folder that was copied or moved belongs to other paths.
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$folder/CMakeCache.txt" || { fresh=(--fresh); stale=1; }
    for setting in "$@"; do
      name="${setting#-D}"
      value="${name#*=}"
      name="${name%%=*}"
      grep -q "^$name:[A-Z]*=$value\$" "$folder/CMakeCache.txt" || stale=1
    done
  else
    stale=1
  fi
  if [ "$stale" = 1 ] || [ ! -e "$folder/build.ninja" ]; then
    cmake --preset "$preset" "${fresh[@]}" "$@" > "$folder/configure.log" 2>&1 || {
      cat "$folder/configure.log" >&2
      die 3 "configuring $folder failed"
    }
    grep '^-- ringbell:' "$folder/configure.log" || true
  fi
}

build() {  # build PRESET [TARGET...]
  local preset="$1"
  shift
  if [ "$#" -gt 0 ]; then
    set -- --target "$@"
  fi
  cmake --build "$ROOT/build/$preset" "$@" || die 3 "building build/$preset failed"
}

gpu_count() {
  local lines=0
  if command -v nvidia-smi > /dev/null; then
    lines="$(timeout 20 nvidia-smi -L 2> /dev/null | grep -c '^GPU ')"
  fi
  printf '%s\n' "${lines:-0}"
}
