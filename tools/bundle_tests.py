#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Copies the tests with the given labels, stripped, into a bundle and writes its `run_tests` script.

usage: bundle_tests.py BUILD_FOLDER BUNDLE LABEL[,LABEL...]
"""
import json
import pathlib
import shlex
import subprocess
import sys

HEADER = r"""#!/usr/bin/env bash
# Runs this bundle's tests, one after the other: run_tests [NAME...]   names may be shell patterns. Closing line
# 'N passed, N failed, N skipped' in programs; RINGBELL_TEST_LOGS=DIR keeps their output.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export RINGBELL_PROGRAM="$here/ringbell" RINGBELL_TEST_DIR="$here/tests" LD_LIBRARY_PATH="$here/lib"
logs="${RINGBELL_TEST_LOGS:-$(mktemp -d)}"
mkdir -p "$logs"
passed=0 failed=0 skipped=0
wanted=("$@")
entry() {  # entry NAME SECONDS [A=B...] -- PROGRAM ARGUMENTS...
  local name="$1" limit="$2" pattern chosen=0 code=0 start=$SECONDS environment=()
  shift 2
  while [ "$1" != -- ]; do environment+=("$1"); shift; done
  shift
  for pattern in "${wanted[@]:-*}"; do
    # shellcheck disable=SC2053
    [[ "$name" == $pattern ]] && chosen=1
  done
  [ "$chosen" = 1 ] || return 0
  env "${environment[@]}" timeout -k 10 "$limit" "$here/tests/$1" "${@:2}" > "$logs/$name.log" 2>&1 < /dev/null || code=$?
  if [ "$code" = 0 ] && ! grep -q '^\[       OK \]' "$logs/$name.log" && grep -q '^\[  SKIPPED \]' "$logs/$name.log"; then
    code=77
  fi
  case "$code" in
    0) passed=$((passed + 1)); printf 'passed   %s (%d s)\n' "$name" $((SECONDS - start)) ;;
    77) skipped=$((skipped + 1)); printf 'skipped  %s\n' "$name" ;;
    *) failed=$((failed + 1)); printf 'FAILED   %s (exit code %d, %d s)\n' "$name" "$code" $((SECONDS - start))
       grep -E -B 12 '^\[  FAILED  \] [A-Za-z]' "$logs/$name.log" | tail -n 60 || tail -n 40 "$logs/$name.log" ;;
  esac
}
"""
FOOTER = r"""printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
"""
# Set by run_tests itself, or meaningless away from the build machine.
LOCAL = ("RINGBELL_SOURCE_DIR=", "RINGBELL_BUILD_DIR=", "RINGBELL_TEST_DIR=", "RINGBELL_PROGRAM=")


def main():
    build, bundle, labels = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), set(sys.argv[3].split(","))
    listing = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], check=True, capture_output=True, text=True)
    lines, copied = [], set()
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        command = test.get("command", [])
        if not labels & set(properties.get("LABELS", [])) or not command:
            continue
        program = pathlib.Path(command[0])
        if program.parent != build / "tests":
            continue
        if not program.exists():
            raise SystemExit(f"{program} is not built")
        if program.name not in copied:
            subprocess.run(["strip", "-o", str(bundle / "tests" / program.name), str(program)], check=True)
            copied.add(program.name)
        environment = [e for e in properties.get("ENVIRONMENT", []) if not e.startswith(LOCAL)]
        limit = int(float(properties.get("TIMEOUT", 60)))
        lines.append(shlex.join(["entry", test["name"], str(limit), *environment, "--", program.name, *command[1:]]))
    script = bundle / "run_tests"
    script.write_text(HEADER + "\n".join(lines) + "\n" + FOOTER, encoding="utf-8")
    script.chmod(0o755)
    print(f"{len(lines)} tests in {len(copied)} programs")


if __name__ == "__main__":
    main()
