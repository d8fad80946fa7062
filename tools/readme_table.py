#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""README's measured tables from the JSON that `ringbell perf -J` wrote.

A table stands between `<!-- table: FILE.json ... -->` and `<!-- end table -->`. Without arguments the tables of README.md
are written anew; with --check the exit code is 1 if one differs from its files. Only float32 sum, out of place.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = re.compile(r"(<!-- table: ([^>]*?) -->\n)(.*?)(<!-- end table -->)", re.DOTALL)
PROTOCOLS = ["LL", "LL128", "Simple"]


def size_text(size):
    for unit, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {suffix}"
    return str(size)


def table_of(documents):
    """documents: parsed files, all of one machine and one number of ranks."""
    best = {}
    floors = []
    for document in documents:
        for row in document["rows"]:
            if row["peer"] != "ringbell" or row["in_place"]:
                continue
            if row["algo"] == "nop":
                floors.append(f"{row['p50_us']:.1f}")
            elif row["dtype"] == "float32" and row["op"] == "sum":
                best[row["bytes"], row["proto"]] = row
    sizes = sorted({size for size, _ in best})
    first = next(iter(best.values()))
    machine = documents[0]["machine"]
    where = machine.get("gpu") or machine.get("cpu") or "unknown machine"
    if machine.get("gpus") and first["device"] == "cuda":
        where = ", ".join(sorted(set(machine["gpus"])))
    text = f"{first['ranks']} ranks, {first['device']}, {where}; p50 of the slowest rank in us"
    text += ", out of place"
    if floors:
        text += f"; an empty call takes {min(floors)}" + (f" to {max(floors)}" if max(floors) != min(floors) else "")
    text += ".\n\n| bytes | " + " | ".join(PROTOCOLS) + " | busbw of the fastest, GB/s |\n"
    text += "| ---: | " + " | ".join("---:" for _ in PROTOCOLS) + " | ---: |\n"
    for size in sizes:
        rows = [best.get((size, protocol)) for protocol in PROTOCOLS]
        cells = [f"{row['p50_us']:.1f}" if row else "" for row in rows]
        fastest = min((row for row in rows if row), key=lambda row: row["p50_us"])
        text += f"| {size_text(size)} | " + " | ".join(cells) + f" | {fastest['busbw_gbps']:.2f} |\n"
    return text


def rewrite(text):
    def one(match):
        files = [json.loads((ROOT / name).read_text(encoding="utf-8")) for name in match.group(2).split()]
        return match.group(1) + table_of(files) + match.group(4)

    return TABLE.sub(one, text)


def main():
    readme = ROOT / "README.md"
    before = readme.read_text(encoding="utf-8")
    after = rewrite(before)
    if "--check" in sys.argv[1:]:
        if before == after:
            return 0
        print("README.md's tables differ from bench/results; run tools/readme_table.py")
        return 1
    readme.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
