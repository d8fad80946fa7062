#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Every file under bench/results has the shape that `ringbell perf -J` promises, and comes from a clean build.

usage: results_schema_test.py [FILE...]     without files: all of bench/results. *.jsonl holds one document a line.
"""
import copy
import json
import math
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
ISSUES = {"host", "after", "stream", "graph", "chain"}
PEERS = {"ringbell", "nccl", "nccl-sym", "nccl-ring-ll", "nccl-ring-ll128", "nccl-ring-simple", "nccl-tree-ll",
         "nccl-tree-ll128", "nccl-tree-simple", "nccl-nop2p", "launch", "mpi", "torch-one-shot", "torch-two-shot"}
RATIOS = ("ratio_min", "ratio", "ratio_max")
# What a row may say besides; files from before these fields do not have them.
MAY = {"ratio": NUMBER, "ratio_min": NUMBER, "ratio_max": NUMBER, "peer_version": str, "peer_env": dict,
       "nvls": (bool, type(None)), "l2": str, "chain": str, "calls_per_sample": int, "launches": int,
       "rate_hz": NUMBER, "hold": bool}
L2 = {"warm", "cold", "flush"}
CHAINS = {"host", "after", "stream", "graph"}


def is_a(value, kinds):
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return any(isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool) for kind in kinds)


def fields(where, value, shape):
    errors = []
    for name, kinds in shape.items():
        if name not in value:
            errors.append(f"{where}: '{name}' is missing")
        elif not is_a(value[name], kinds):
            errors.append(f"{where}: '{name}' is {json.dumps(value[name])[:40]}, of the wrong type")
    return errors


def check_choices(place, row):
    """Fields with a fixed set of values, and those that only some rows have."""
    errors = []
    for name, known in (("device", DEVICES), ("issue", ISSUES), ("peer", PEERS), ("l2", L2), ("chain", CHAINS)):
        if name in row and row[name] not in known:
            errors.append(f"{place}: {name} '{row[name]}' is unknown: one of {', '.join(sorted(known))}")
    for name, value in row.get("peer_env", {}).items():
        if not isinstance(value, str):
            errors.append(f"{place}: peer_env's {name} is {json.dumps(value)[:40]}, not a text")
    if "chain" in row and row["issue"] != "chain":
        errors.append(f"{place}: 'chain' belongs to issue chain, not {row['issue']}")
    given = [row[name] for name in RATIOS if name in row]
    if given and len(given) != len(RATIOS):
        errors.append(f"{place}: ratio, ratio_min and ratio_max stand together")
    elif given and not 0 < given[0] <= given[1] <= given[2]:
        errors.append(f"{place}: ratio_min {given[0]}, ratio {given[1]}, ratio_max {given[2]} are not in order")
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
        problems = fields(place, row, ROW) + fields(place, row, {name: MAY[name] for name in MAY if name in row})
        errors += problems
        if problems:
            continue
        errors += check_choices(place, row)
        if row["algo"] != "nop":
            for name, known in (("dtype", DTYPES), ("op", OPS)):
                if row[name] not in known:
                    errors.append(f"{place}: {name} '{row[name]}' is unknown")
            if row["peer"] == "ringbell" and row["wrong"] not in (0, None):
                errors.append(f"{place}: {row['wrong']} wrong elements")
        for name in ("ranks", "rounds"):
            if row[name] < 1:
                errors.append(f"{place}: {row[name]} {name}")
        if not row["p10_us"] <= row["p50_us"] <= row["p99_us"] <= row["max_us"]:
            errors.append(f"{place}: percentiles are not in order")
    return errors


OURS = {
    "bytes": 8, "count": 2, "dtype": "float32", "op": "sum", "algo": "ring", "proto": "LL", "issue": "host",
    "peer": "ringbell", "ranks": 2, "device": "cpu", "channels": 1, "in_place": False, "iters": 20, "rounds": 1,
    "p10_us": 1.0, "p50_us": 2, "p99_us": 3.0, "p999_us": None, "max_us": 4.0, "cv": 0.1, "algbw_gbps": 1.0,
    "busbw_gbps": 1.0, "wrong": 0, "hash": None}
THEIRS = dict(OURS, peer="nccl-ring-ll", issue="graph", rounds=5, ratio=3.5, ratio_min=3.1, ratio_max=3.5,
              peer_version="2.28.3", peer_env={"NCCL_PROTO": "LL"}, nvls=False, l2="warm")
SAMPLE = {
    "schema": 1, "machine": {"cpu": "x"}, "commit": "0123abc", "dirty": False, "version": "0.1.0", "command": "perf",
    "env": {}, "method": "time", "rows": [OURS, THEIRS]}


def self_check():
    """The sample and what else is allowed passes; every spoilt copy of it is refused."""

    def changed(change):
        document = copy.deepcopy(SAMPLE)
        change(document)
        return document

    def ours(**values):
        return lambda d: d["rows"][0].update(values)

    def theirs(**values):
        return lambda d: d["rows"][1].update(values)

    fine = [lambda d: None, theirs(wrong=3), theirs(nvls=None), theirs(nvls=True), theirs(peer_env={}),
            theirs(dtype="bfloat16", channels=None, proto="none", algo="unknown"), ours(l2="cold"), ours(wrong=None),
            lambda d: [d["rows"][1].pop(name) for name in RATIOS]]
    fine += [theirs(peer=name) for name in PEERS] + [theirs(issue=name) for name in ISSUES] + [theirs(l2=name) for name in L2]
    fine += [theirs(issue="chain", chain=name) for name in CHAINS]
    fine += [lambda d, n=n: d["rows"][1].pop(n) for n in MAY if n in THEIRS and n not in RATIOS]
    for index, change in enumerate(fine):
        assert not check(changed(change)), f"good copy {index}: {check(changed(change))}"

    spoilt = [lambda d: d.update(dirty=True), lambda d: d.update(schema=2), lambda d: d.update(commit="unknown"),
              lambda d: d.update(rows=[]), lambda d: d.update(machine={}), ours(wrong=1), ours(p50_us="2"),
              ours(p50_us=9.0), ours(dtype="float31"), ours(ranks=True), ours(ranks=0), ours(rounds=0), theirs(rounds=0),
              ours(issue="post"), theirs(issue=""), ours(peer="nccl2"), theirs(peer="torch"), ours(device="tpu"),
              ours(p50_us=math.nan), theirs(max_us=math.inf), theirs(dtype="float31"), theirs(ratio="3"),
              theirs(ratio=None), theirs(ratio=True), theirs(ratio=math.nan), theirs(ratio_min=3.6),
              theirs(ratio_max=3.4), theirs(ratio_min=0), theirs(peer_version=2), theirs(peer_version=None),
              theirs(peer_env=[]), theirs(peer_env={"NCCL_PROTO": 1}), theirs(peer_env=None), theirs(nvls="off"),
              theirs(nvls=0), theirs(l2="hot"), theirs(l2=None), ours(l2=""),
              theirs(issue="chain", chain="bell"), theirs(issue="host", chain="host"), ours(calls_per_sample="64")]
    spoilt += [lambda d, n=n: d.pop(n) for n in TOP] + [lambda d, n=n, i=i: d["rows"][i].pop(n) for n in ROW for i in (0, 1)]
    spoilt += [lambda d, n=n: d["rows"][1].pop(n) for n in RATIOS]
    for index, change in enumerate(spoilt):
        assert check(changed(change)), f"spoilt copy {index} passed"


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
