#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Every memory-ordering edge has both ends.

An edge is used in one of two ways, in device/, host/ or runtime/:
  * it is passed to the operation that orders:  M::store_release(&word, value, Edge::kTail)
    The operation's name says which end it is (fences and group barriers are both).
  * or the line says so in a comment:           // edge PHASE: release     // edge PHASE: acquire
Each edge needs at least one release and one acquire, each enumerator of Edge (device/mem/edges.hpp) must be used, and a
use must name an enumerator. kTail, TAIL and Tail are the same edge.
"""
import pathlib
import re
import sys

FOLDERS = ("device", "host", "runtime")
SUFFIXES = {".hpp", ".cpp", ".cuh", ".cu", ".h"}
EDGES_FILE = "device/mem/edges.hpp"
COMMENT = re.compile(r"//[/!<]*\s*edge\s+([A-Za-z0-9_]+)\s*:\s*([a-z_]+)")
USE = re.compile(r"\bEdge::(k\w+)")
BOTH = re.compile(r"fence|sync|barrier|agree")
RELEASE = re.compile(r"release|publish|store|signal")
ACQUIRE = re.compile(r"acquire|read|load|poll|wait|await")


def canonical(name):
    return re.sub(r"^k(?=[A-Z])", "", name).replace("_", "").lower()


def operation_of(text, position):
    """@return the name of the call whose argument list holds `position`, or ''."""
    depth = 0
    for index in range(position - 1, max(position - 600, -1), -1):
        if text[index] in ")}":
            depth += 1
        elif text[index] in "({":
            if depth == 0 and text[index] == "{":
                return ""
            if depth == 0:
                found = re.search(r"(\w+)\s*(?:<[^<>()]*>)?\s*$", text[max(index - 80, 0):index])
                return found.group(1) if found else ""
            depth -= 1
        elif text[index] == ";" and depth == 0:
            return ""
    return ""


def collect(files):
    """files: {name: text}. @return ({edge: {"release": [place], "acquire": [place]}}, {enumerator}, [error])"""
    edges, errors, enumerators = {}, [], {}
    declared = re.search(r"enum class Edge[^{]*\{(.*?)\};", files.get(EDGES_FILE, ""), re.DOTALL)
    if declared:
        body = re.sub(r"//.*", "", declared.group(1))
        enumerators = {canonical(name): name for name in re.findall(r"\b(k\w+)\b", body)}

    def add(name, end, place):
        edges.setdefault(canonical(name), {"release": [], "acquire": []})[end].append(place)

    for file, text in sorted(files.items()):
        for number, line in enumerate(text.splitlines(), 1):
            for name, end in COMMENT.findall(line):
                if end not in ("release", "acquire"):
                    errors.append(f"{file}:{number}: edge {name}: '{end}' is neither release nor acquire")
                else:
                    add(name, end, f"{file}:{number}")
        for use in USE.finditer(text) if file != EDGES_FILE else ():
            number = text.count("\n", 0, use.start()) + 1
            place = f"{file}:{number}"
            if canonical(use.group(1)) not in enumerators:
                errors.append(f"{place}: Edge::{use.group(1)} is not in {EDGES_FILE}")
                continue
            line = text.splitlines()[number - 1]
            if COMMENT.search(line):
                continue  # the comment has said it
            operation = operation_of(text, use.start())
            if BOTH.search(operation):
                add(use.group(1), "release", place)
                add(use.group(1), "acquire", place)
            elif RELEASE.search(operation):
                add(use.group(1), "release", place)
            elif ACQUIRE.search(operation):
                add(use.group(1), "acquire", place)
    return edges, enumerators, errors


def check(files):
    edges, enumerators, errors = collect(files)
    for key, name in sorted(enumerators.items()):
        if key not in edges:
            errors.append(f"{EDGES_FILE}: {name} is used by no ordering operation")
    for key, ends in sorted(edges.items()):
        name = enumerators.get(key, key.upper())
        if not ends["acquire"]:
            errors.append(f"{ends['release'][0]}: edge {name} has a release here and no acquire anywhere")
        if not ends["release"]:
            errors.append(f"{ends['acquire'][0]}: edge {name} has an acquire here and no release anywhere")
    return edges, errors


def self_check():
    """The checker finds what it is for."""
    enum = {EDGES_FILE: "enum class Edge { kTail, kCredit };  // kNot here"}
    good = "if (x) { y(); } M::store_release(&a, Q{f(b)}, Edge::kTail); M::load_acquire(&a, Edge::kTail); g.sync(Edge::kCredit);"
    assert not check({**enum, "device/a.hpp": good})[1]
    assert check({**enum, "device/a.hpp": good.replace("load_acquire", "load_acquires_not").replace("acquire", "x").replace("load", "y")})[1]
    assert check({**enum, "device/a.hpp": good.replace("g.sync", "g.nothing")})[1]
    assert check({**enum, "device/a.hpp": good + "f.sync(Edge::kGone);"})[1]
    assert check({"host/a.cpp": "x();  // edge PHASE: release"})[1]
    assert check({"host/a.cpp": "x();  // edge PHASE: maybe"})[1]
    assert not check({"host/a.cpp": "x();  // edge PHASE: release, first\ny();  // edge PHASE: acquire"})[1]


def main():
    self_check()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = {}
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in SUFFIXES:
                files[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    edges, errors = check(files)
    for error in errors:
        print(error)
    print(f"{len(edges)} edges in {len(files)} files, {len(errors)} errors")
    return 1 if errors or not edges else 0


if __name__ == "__main__":
    sys.exit(main())
