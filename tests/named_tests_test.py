#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Every test that the case table of tests/README.md names exists.

A row is `| case | test name | executor |`; the second column holds one or more names in backticks: Suite.Case of
GoogleTest (typed and parameterised suites by their plain name) or the name of a ctest entry.
usage: named_tests_test.py BUILD_FOLDER
"""
import pathlib
import re
import subprocess
import sys

MACRO = re.compile(r"^\s*(?:GTEST_)?(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
CASE = re.compile(r"^\|\s*([A-Z]+\d+[^|]*?)\s*\|([^|]*)\|([^|]*)\|\s*$", re.MULTILINE)


def defined(text):
    return {f"{suite}.{case}" for suite, case in MACRO.findall(text)}


def rows(text):
    """@return [(case, [test names])]"""
    return [(case, re.findall(r"`([^`]+)`", names)) for case, names, _ in CASE.findall(text)]


def check(table, known):
    errors = []
    for case, names in table:
        if not names:
            errors.append(f"{case}: names no test")
        for name in names:
            if name not in known:
                errors.append(f"{case}: '{name}' does not exist")
    return errors


def main():
    sample = "| case | test name | executor |\n| --- | --- | --- |\n| C01 | `A.B`, `c` | cpu |\n| C02 | soon | cpu |\n"
    assert rows(sample) == [("C01", ["A.B", "c"]), ("C02", [])]
    assert len(check(rows(sample), {"A.B"})) == 2 and defined("TEST(A, B) {") == {"A.B"}

    here = pathlib.Path(__file__).resolve().parent
    known = set()
    for path in here.rglob("*"):
        if path.suffix in {".cpp", ".cu", ".hpp"}:
            known |= defined(path.read_text(encoding="utf-8"))
    listing = subprocess.run(["ctest", "--test-dir", sys.argv[1], "-N"], capture_output=True, text=True, check=True).stdout
    known |= set(re.findall(r"Test\s+#\d+: (\S+)", listing))
    # GPU entries exist only in a build with CUDA; their files exist always.
    known |= {path.stem for path in here.glob("gpu/*_test.*")}
    table = rows((here / "README.md").read_text(encoding="utf-8"))
    errors = check(table, known)
    for error in errors:
        print(f"tests/README.md: {error}")
    print(f"{len(table)} cases, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
