#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Do two runs of `ringbell perf --against` agree? Compares the ratios of equal rows.

usage: compare_ratios.py FIRST.json SECOND.json [--within 0.05] [--to 1048576]
Rows are equal in size, type, operation, way to issue, placement and peer. Prints each pair that differs by more, then
'N pairs, largest difference D'. Exit 0: all within; 1: some are not; 3: a file cannot be read, or there are no pairs.
"""
import argparse
import json
import sys


def ratios(document, to_bytes):
    found = {}
    for row in document["rows"]:
        if row.get("ratio") is None or row["bytes"] > to_bytes:
            continue
        issue = row["issue"] + ("-" + row["chain"] if "chain" in row else "")
        found[row["bytes"], row["dtype"], row["op"], issue, row["in_place"], row["peer"]] = row["ratio"]
    return found


def compare(first, second, within):
    """@return (pairs, largest relative difference, texts of those beyond `within`)"""
    largest, beyond = 0.0, []
    common = sorted(first.keys() & second.keys())
    for key in common:
        difference = abs(first[key] - second[key]) / min(first[key], second[key])
        largest = max(largest, difference)
        if difference > within:
            beyond.append(f"{key[0]} bytes {key[1]} {key[2]} {key[3]}{' in place' if key[4] else ''} {key[5]}: "
                          f"{first[key]:.3f} and {second[key]:.3f}")
    return len(common), largest, beyond


def main(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--within", type=float, default=0.05)
    parser.add_argument("--to", type=int, default=1 << 20)
    options = parser.parse_args(arguments)
    documents = []
    for name in options.files:
        try:
            with open(name, encoding="utf-8") as file:
                documents.append(ratios(json.load(file), options.to))
        except (OSError, ValueError, KeyError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 3
    pairs, largest, beyond = compare(*documents, options.within)
    for text in beyond:
        print(text)
    print(f"{pairs} pairs, largest difference {largest:.3f}")
    return 3 if pairs == 0 else 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
