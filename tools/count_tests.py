#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Counts GoogleTest cases in a ctest JUnit file and prints the closing line of tools/test.

An entry that is not a GoogleTest program counts as one. An entry that failed without saying which case (crash, time
limit, sanitizer) adds one failure. Exit 1 when something failed or ctest itself did.
"""
import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree


def count(entry):
    """@return (passed, failed, skipped) of one ctest entry."""
    output = entry.findtext("system-out") or ""
    status = entry.get("status")
    if status in ("notrun", "disabled"):
        # ctest says so for exit code 77, and for a program that is not there.
        missing = "Unable to find executable" in ElementTree.tostring(entry, encoding="unicode")
        return (0, 1, 0) if missing else (0, 0, 1)

    def last(pattern):
        found = re.findall(pattern, output, re.MULTILINE)
        return int(found[-1]) if found else 0

    failed_entry = status != "run"
    if not re.search(r"^\[==========\] (Running )?\d+ tests? from", output, re.MULTILINE):
        return (0, 1, 0) if failed_entry else (1, 0, 0)
    passed = last(r"^\[  PASSED  \] (\d+) tests?\.")
    skipped = last(r"^\[  SKIPPED \] (\d+) tests?, listed below")
    failed = last(r"^\[  FAILED  \] (\d+) tests?, listed below")
    if not re.search(r"^\[  PASSED  \]", output, re.MULTILINE):
        passed = len(re.findall(r"^\[       OK \]", output, re.MULTILINE))
    if failed_entry and failed == 0:
        failed = 1
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ctest-exit", type=int, default=0)
    parser.add_argument("--skipped", type=int, default=0, help="entries left out on purpose")
    parser.add_argument("junit")
    arguments = parser.parse_args()
    totals = [0, 0, arguments.skipped]
    try:
        entries = ElementTree.parse(arguments.junit).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"count_tests: {arguments.junit}: {error}", file=sys.stderr)
        entries = []
        totals[1] = 1
    for entry in entries:
        totals = [a + b for a, b in zip(totals, count(entry))]
    if arguments.ctest_exit != 0 and totals[1] == 0:
        totals[1] = 1
    if totals[0] == 0 and totals[1] == 0:
        print("count_tests: no test ran", file=sys.stderr)
        totals[1] = 1
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
