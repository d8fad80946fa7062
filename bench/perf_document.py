# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON document of `ringbell perf -J` (schema 1), for peers that a Python script drives: the same statistics, the same
description of machine, environment and commit. Standard library only. What the fields mean is README.md here.
"""
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OK, WRONG, BROKEN, ENVIRONMENT, LOST, USAGE = 0, 1, 2, 3, 4, 64  # perf's exit codes


class Failure(Exception):
    """Ends the program with a code after its text."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def quantile(ordered, q):
    """The value below which a share `q` lies, linear between neighbours. @param ordered ascending, not empty"""
    position = q * (len(ordered) - 1)
    below = int(position)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (position - below)


def times(samples):
    """The time fields of a row."""
    ordered = sorted(samples)
    mean = statistics.fmean(ordered)
    fields = {f"{name}_us": round(quantile(ordered, q), 4) for name, q in (("p10", 0.1), ("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    cv = statistics.stdev(ordered) / mean if len(ordered) > 1 and mean > 0 else 0.0
    return {**fields, "max_us": round(ordered[-1], 4), "cv": round(cv, 4)}


def bandwidths(size, p50_us, ranks):
    """10^9 bytes a second, as nccl-tests counts; None for a time of 0 or less, which a difference of two may be."""
    if p50_us <= 0:
        return {"algbw_gbps": None, "busbw_gbps": None}
    algorithm = size / p50_us / 1e3
    return {"algbw_gbps": round(algorithm, 4), "busbw_gbps": round(algorithm * 2 * (ranks - 1) / ranks, 4)}


def _first_line(path, pattern):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((found.group(1) for found in map(re.compile(pattern).search, file) if found), None)
    except OSError:
        return None


def machine(gpus, driver_cuda, cuda_runtime):
    """No host name. @param gpus names of the visible devices"""
    names = os.uname()
    return {"cpu": _first_line("/proc/cpuinfo", r"^model name\s*: (.*)") or platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": f"{names.sysname} {names.release}", "gpu_count": len(gpus),
            "gpus": gpus, "driver": _first_line("/proc/driver/nvidia/version", r"\s(\d+\.[\d.]*\d)\s"), "driver_cuda": driver_cuda,
            "cuda_runtime": cuda_runtime}


def environment(variables, prefixes):
    """Settings that change what is measured. That a path is set may matter; where it leads does not."""
    left_out = {"CUDA_HOME", "CUDA_PATH"}
    return {name: "(a path)" if value.startswith("/") else value for name, value in variables.items()
            if name.startswith(tuple(prefixes)) and name not in left_out}


def command_text(program, arguments):
    """Of a path only the last part: results are read on other machines."""
    return " ".join([program, *(os.path.basename(word) if word.startswith("/") else word for word in arguments)])


def git(root, *words):
    """@return its answer, or None"""
    try:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def commit_of(root, given, files, ask=git):
    """@param given by the caller, or None  @param files what is measured with, from the root  @return (commit, dirty)"""
    if given is not None and not re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", given):
        raise Failure(USAGE, f"--commit '{given}': 7 to 40 hexadecimal digits, with -dirty behind if the files differ from it")
    answer = ask(root, "rev-parse", "--show-cdup", "HEAD")
    # The folder's own repository only: an unpacked bundle inside somebody else's repository has no commit.
    found = re.fullmatch(r"\n?([0-9a-f]{40})\n", answer.stdout) if answer and answer.returncode == 0 else None
    if found:
        if given is not None and not found.group(1).startswith(given.removesuffix("-dirty")):
            raise Failure(USAGE, f"--commit '{given}': this checkout is at {found.group(1)}")
        status = ask(root, "status", "--porcelain", "--", *files)
        return found.group(1), status is None or status.returncode != 0 or bool(status.stdout)
    if given is None:
        raise Failure(ENVIRONMENT, "no git repository here: say by --commit which commit these files are of")
    return given.removesuffix("-dirty"), given.endswith("-dirty")


def version_of(root):
    return _first_line(root / "CMakeLists.txt", r"VERSION (\d+\.\d+\.\d+)") or "unknown"


def document(rows, *, about_machine, commit, dirty, version, command, env, method):
    return {"schema": 1, "machine": about_machine, "commit": commit, "dirty": dirty, "version": version, "command": command,
            "env": env, "method": method, "rows": rows}


def check_writable(path):
    """Told before measuring, not after."""
    folder = pathlib.Path(path).resolve().parent
    if not os.access(folder, os.W_OK):
        raise Failure(ENVIRONMENT, f"-J {path}: cannot write into {folder}")


def write(path, content):
    """All or nothing."""
    path = pathlib.Path(path).resolve()
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise Failure(ENVIRONMENT, f"-J {path}: {error.strerror}") from None


def is_finite(samples):
    return bool(samples) and all(isinstance(value, (int, float)) and math.isfinite(value) for value in samples)
