#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""What README files show is what is built: a C++ block after `<!-- from runtime/examples/NAME.cpp -->` equals that file
(less its leading comment), every relative link and picture leads to a file, and the marked tables and pictures are those
that tools/plot makes of bench/results.
"""
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"<!--\s*from\s+(\S+)\s*-->\s*\n```(?:cpp|c\+\+|c|sh|bash)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)|\ssrc(?:set)?=\"([^\":]+)\"")


def body(text):
    return re.sub(r"\A(?://[^\n]*\n|#[ !][^\n]*\n|\s*\n)+(?=#include|\S)", "", text).strip()


def check(name, text, read):
    """`read(path)` gives a file's text from the root, or None."""
    errors = []
    for source, block in BLOCK.findall(text):
        found = read(source)
        if found is None:
            errors.append(f"{name}: {source} does not exist")
        elif body(found) != block.strip():
            errors.append(f"{name}: the block from {source} differs from the file")
    for target in (link or picture for link, picture in LINK.findall(text)):
        folder = pathlib.PurePosixPath(name).parent
        if read(str(folder / target)) is None:
            errors.append(f"{name}: link to {target}, which does not exist")
    return errors


def main():
    files = {"e.cpp": "// SPDX\n//\n// What.\n#include <a>\nint main() {}\n"}
    good = "<!-- from e.cpp -->\n```cpp\n#include <a>\nint main() {}\n```\n[x](e.cpp)"
    assert not check("README.md", good, files.get)
    assert check("README.md", good.replace("{}", "{ }"), files.get)
    assert check("README.md", "[x](gone.md)", files.get) and check("README.md", good.replace("e.cpp -->", "f.cpp -->"), files.get)

    picture = '<picture>\n<source srcset="e.cpp">\n<img src="%s" alt="x"></picture>'
    assert not check("README.md", picture % "e.cpp", files.get) and check("README.md", picture % "gone.svg", files.get)

    root = pathlib.Path(__file__).resolve().parent.parent

    def read(name):
        path = root / name
        if path.is_dir():
            return ""
        try:
            return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        except OSError:
            return None

    errors, count = [], 0
    for pattern in ("*.md", "*/README.md", ".github/*.md"):
        for path in root.glob(pattern):
            count += 1
            errors += check(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"), read)
    if subprocess.run([sys.executable, root / "tools/plot", "--check"], check=False).returncode != 0:
        errors.append("README.md: measured tables or pictures differ from bench/results")
    for error in errors:
        print(error)
    print(f"{count} documents, {len(errors)} errors")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
