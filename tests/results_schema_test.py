#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Every file under bench/results has the shape that `ringbell perf -J` promises, and comes from a clean build.

usage: results_schema_test.py [FILE...]     without files: all of bench/results. *.jsonl holds one document a line.
"""
import copy
import json
import pathlib
import re
import sys

NUMBER = (int, float)
OPTIONAL = (int, float, type(None))
TOP = {"schema": int, "machine": dict, "commit": str, "dirty": bool, "version": str, "command": str, "env": dict,
       "method": str, "rows": list}
ROW = {"bytes": int, "count": int, "dtype": str, "op": str, "algo": str, "proto": str, "issue": str, "peer": str,
       "ranks": int, "device": str, "channels": (int, type(None)), "in_place": bool, "iters": int, "rounds": int,
       "p10_us": NUMBER, "p50_us": NUMBER, "p99_us": NUMBER, "p999_us": OPTIONAL, "max_us": NUMBER, "cv": OPTIONAL,
       "algbw_gbps": OPTIONAL, "busbw_gbps": OPTIONAL, "wrong": (int, type(None)), "hash": (str, type(None))}
DTYPES = {"float32", "float64", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "fp8_e4m3", "fp8_e5m2", "int8",
          "uint8", "int32", "uint32", "int64", "uint64"}
OPS = {"sum", "prod", "min", "max", "avg"}
DEVICES = {"cpu", "cuda"}


def is_a(value, kinds):
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return any(isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool) for kind in kinds)


def fields(where, value, shape):
    errors = []
    for name, kinds in shape.items():
        if name not in value:
            errors.append(f"{where}: '{name}' is missing")
        elif not is_a(value[name], kinds):
            errors.append(f"{where}: '{name}' is {json.dumps(value[name])[:40]}, of the wrong type")
    return errors


def check(document, where="document"):
    """@return errors of one JSON document."""
    if not isinstance(document, dict):
        return [f"{where}: not an object"]
    errors = fields(where, document, TOP)
    if errors:
        return errors
    if document["schema"] != 1:
        errors.append(f"{where}: schema {document['schema']}, expected 1")
    if document["dirty"]:
        errors.append(f"{where}: measured with a dirty build: commit, build and measure again")
    if not re.fullmatch(r"[0-9a-f]{7,40}", document["commit"]):
        errors.append(f"{where}: commit '{document['commit']}' is no commit")
    if not document["rows"]:
        errors.append(f"{where}: no rows")
    if not document["machine"]:
        errors.append(f"{where}: the machine is not described")
    for index, row in enumerate(document["rows"]):
        place = f"{where}: row {index}"
        if not isinstance(row, dict):
            errors.append(f"{place}: not an object")
            continue
        problems = fields(place, row, ROW)
        errors += problems
        if problems:
            continue
        if row["algo"] != "nop":
            for name, known in (("dtype", DTYPES), ("op", OPS)):
                if row[name] not in known:
                    errors.append(f"{place}: {name} '{row[name]}' is unknown")
            if row["peer"] == "ringbell" and row["wrong"] not in (0, None):
                errors.append(f"{place}: {row['wrong']} wrong elements")
        if row["device"] not in DEVICES:
            errors.append(f"{place}: device '{row['device']}' is unknown")
        if not 1 <= row["ranks"]:
            errors.append(f"{place}: {row['ranks']} ranks")
        if not row["p10_us"] <= row["p50_us"] <= row["p99_us"] <= row["max_us"]:
            errors.append(f"{place}: percentiles are not in order")
    return errors


SAMPLE = {
    "schema": 1, "machine": {"cpu": "x"}, "commit": "0123abc", "dirty": False, "version": "0.1.0", "command": "perf",
    "env": {}, "method": "time", "rows": [{
        "bytes": 8, "count": 2, "dtype": "float32", "op": "sum", "algo": "ring", "proto": "LL", "issue": "host",
        "peer": "ringbell", "ranks": 2, "device": "cpu", "channels": 1, "in_place": False, "iters": 20, "rounds": 1,
        "p10_us": 1.0, "p50_us": 2, "p99_us": 3.0, "p999_us": None, "max_us": 4.0, "cv": 0.1, "algbw_gbps": 1.0,
        "busbw_gbps": 1.0, "wrong": 0, "hash": None}]}


def self_check():
    """The sample passes; every spoilt copy of it is refused."""
    assert not check(SAMPLE), check(SAMPLE)

    def spoilt(change):
        document = copy.deepcopy(SAMPLE)
        change(document)
        return document

    changes = [lambda d: d.update(dirty=True), lambda d: d.update(schema=2), lambda d: d.update(commit="unknown"),
               lambda d: d.update(rows=[]), lambda d: d.update(machine={}), lambda d: d["rows"][0].update(wrong=1),
               lambda d: d["rows"][0].update(p50_us="2"), lambda d: d["rows"][0].update(p50_us=9.0),
               lambda d: d["rows"][0].update(dtype="float31"), lambda d: d["rows"][0].update(ranks=True)]
    changes += [lambda d, n=n: d.pop(n) for n in TOP] + [lambda d, n=n: d["rows"][0].pop(n) for n in ROW]
    for index, change in enumerate(changes):
        assert check(spoilt(change)), f"spoilt copy {index} passed"


def documents(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return [json.loads(text)]


def main():
    self_check()
    folder = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results"
    paths = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".jsonl"))
    errors = []
    for path in paths:
        try:
            for index, document in enumerate(documents(path)):
                errors += check(document, f"{path.name}[{index}]" if path.suffix == ".jsonl" else path.name)
        except (OSError, ValueError) as error:
            errors.append(f"{path}: {error}")
    for error in errors[:50]:
        print(error)
    print(f"{len(paths)} files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
