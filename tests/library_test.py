#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""libringbell.so needs only what every system has, and exports only ringbell's names.

usage: library_test.py BUILD_FOLDER [--sanitized]
"""
import pathlib
import re
import subprocess
import sys

NEEDED = re.compile(r"^(libc|libstdc\+\+|libm|libgcc_s|ld-linux-[a-z0-9_-]+)\.so\.\d+$")
SANITIZER = re.compile(r"^lib(asan|ubsan|tsan)\.so\.\d+$")
EXPORTED = re.compile(r"^(ringbell::|ringbell_|(typeinfo|typeinfo name|vtable|guard variable) for ringbell::)")
PRIVATE = re.compile(r"\bringbell::(device|host)::\w+(::\w+)*\(")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def foreign_needed(text, allow_sanitizer=False):
    names = re.findall(r"\(NEEDED\).*\[(.+)\]", text)
    assert names, "no NEEDED entry at all: is this a dynamic library?"
    return [n for n in names if not NEEDED.match(n) and not (allow_sanitizer and SANITIZER.match(n))]


def foreign_names(text):
    return [name for name in (line.split(" ", 2)[2] for line in text.splitlines() if line) if not EXPORTED.match(name)]


def main():
    folder = pathlib.Path(sys.argv[1])
    sanitized = "--sanitized" in sys.argv
    assert foreign_needed(" (NEEDED) Shared library: [libfmt.so.9]") == ["libfmt.so.9"]
    assert foreign_names("0000 T fmt::v9::format(int)\n0001 T ringbell::x()\n") == ["fmt::v9::format(int)"]

    errors = []
    library = folder / "libringbell.so"
    for binary in (library, folder / "ringbell"):
        if binary.exists():
            errors += [f"{binary.name} needs {n}" for n in foreign_needed(output("readelf", "-d", str(binary)), sanitized)]
    names = output("nm", "-D", "--defined-only", "-C", str(library))
    errors += [f"libringbell.so exports {n}" for n in foreign_names(names)]
    errors += [f"libringbell.so exports a private function: {n}" for n in re.findall(r".* T (.*)", names) if PRIVATE.match(n)]
    if not re.search(r" T ringbell", names):
        errors.append("libringbell.so exports no ringbell function")
    soname = re.search(r"\(SONAME\).*\[(.+)\]", output("readelf", "-d", str(library)))
    if not soname or soname.group(1) != "libringbell.so.0":
        errors.append(f"SONAME is {soname and soname.group(1)}, expected libringbell.so.0")
    if re.search(r"GNU_STACK.*RWE", output("readelf", "-lW", str(library))):
        errors.append("libringbell.so wants an executable stack")
    for error in errors:
        print(error)
    print(f"{len(names.splitlines())} exported names, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
