#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that reads the tree without building it: format, scripts, layers, edges; with --tidy also clang-tidy, which
# needs build/release or build/debug to be configured. Tools that are not installed are named and left out.
# usage: tools/lint.sh [--format | --fix | --tidy]     --format: exit 77 without clang-format 14; --fix: rewrite
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3

mode="${1:-all}"
case "$mode" in
  all | --format | --fix | --tidy) ;;
  *) printf 'lint.sh: unknown option %s: --format, --fix or --tidy\n' "$mode" >&2; exit 64 ;;
esac

sources() {
  if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- 'device/*' 'host/*' 'runtime/*' 'tools/*' 'bench/*' 'tests/*'
  else
    find device host runtime tools bench tests -type f
  fi | grep -E '\.(hpp|cpp|cuh|cu|h)$' | sort -u
}
mapfile -t files < <(sources | while read -r file; do [ -e "$file" ] && printf '%s\n' "$file"; done)

status=0
report() {  # report NAME CODE
  printf '%-12s %s\n' "$1" "$([ "$2" -eq 0 ] && echo ok || echo FAILED)"
  [ "$2" -eq 0 ] || status=1
}

# Another version formats otherwise; 14 is Debian 12's.
formatter=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" > /dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    formatter="$candidate"
    break
  fi
done
if [ -z "$formatter" ]; then
  printf 'format       skipped: no clang-format 14\n'
  [ "$mode" = --format ] || [ "$mode" = --fix ] && exit 77
elif [ "$mode" = --fix ]; then
  "$formatter" -i "${files[@]}"
  exit
else
  "$formatter" --dry-run --Werror "${files[@]}"
  report format $?
fi
[ "$mode" = --format ] && exit "$status"

if command -v shellcheck > /dev/null; then
  shellcheck -x tools/quickstart tools/test tools/bundle tools/lint.sh tools/lib.sh .ci/run
  report shellcheck $?
else
  printf 'shellcheck   skipped: not installed\n'
fi
if command -v codespell > /dev/null; then
  codespell --quiet-level 3 --skip './build,*.json,*.jsonl' -- *.md device host runtime tools bench tests .github
  report codespell $?
fi
if command -v ruff > /dev/null; then
  ruff check --quiet --line-length 130 tools tests bench runtime
  report ruff $?
fi
python3 tests/layering_test.py
report layering $?
python3 tools/check_edges.py
report edges $?

if [ "$mode" = --tidy ]; then
  folder=""
  for candidate in build/release build/debug; do
    [ -e "$candidate/compile_commands.json" ] && folder="$candidate" && break
  done
  if [ -z "$folder" ] || ! command -v clang-tidy > /dev/null; then
    printf 'clang-tidy   FAILED: needs clang-tidy and a configured build/debug or build/release\n'
    status=1
  else
    printf '%s\n' "${files[@]}" | grep -E '^(host|runtime|tools)/[^/]*\.cpp$' | grep -vE '_cuda\.cpp$' |
      while read -r file; do if grep -qF "/$file\"" "$folder/compile_commands.json"; then printf '%s\n' "$file"; fi; done |
      xargs -r -P "$(nproc)" -n 1 clang-tidy --quiet -p "$folder" 2> /dev/null
    report clang-tidy $?
  fi
fi
exit "$status"
