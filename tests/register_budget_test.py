#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""The resident kernel and that of a launched call stay within their budget: registers, spills, compile time and memory, per architecture.

usage: register_budget_test.py NVCC LOG [ARCH...]     ptxas' words go to LOG, the figures to standard output.
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

MAX_REGISTERS = 64
MAX_SPILL_BYTES = 0
MAX_COMPILE_SECONDS = 60
MAX_COMPILE_KILOBYTES = 2 * 1024 * 1024
KERNELS = ("device/cuda/persistent_kernel.cu", "device/cuda/launched_kernel.cu")
# The time and memory limits are for a build machine that does nothing else; this many times the limit ends the compiler.
GIVE_UP = 5


def parse(text):
    """@return [(function, is_kernel, registers, stack, spill bytes)] from ptxas -v."""
    functions, kernels = {}, set()
    current = None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            current = found.group(1)
            kernels.add(current)
            functions.setdefault(current, [0, 0, 0])
        elif found := re.search(r"Function properties for (\S+)", line):
            current = found.group(1).strip("'")
            functions.setdefault(current, [0, 0, 0])
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, stores, loads = map(int, found.groups())
            functions[current][1:] = [stack, stores + loads]
        elif found := re.search(r"Used (\d+) registers", line):
            functions[current][0] = int(found.group(1))
    return [(name, name in kernels, *values) for name, values in functions.items()]


def judge(functions):
    errors = []
    if not any(kernel for _, kernel, *_ in functions):
        errors.append("no kernel in ptxas' output")
    for name, _, registers, _, spill in functions:
        if registers > MAX_REGISTERS:
            errors.append(f"{name}: {registers} registers, the budget is {MAX_REGISTERS}")
        if spill > MAX_SPILL_BYTES:
            errors.append(f"{name}: {spill} bytes spilled, the budget is {MAX_SPILL_BYTES}")
    return errors


def self_check():
    sample = """ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'
ptxas info    : Function properties for _Z1kPf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 65 registers, used 0 barriers, 8 bytes cumulative stack size"""
    assert parse(sample) == [("_Z1kPf", True, 65, 8, 8)]
    assert len(judge(parse(sample))) == 2 and judge([])


def compile_once(nvcc, root, kernel, arch, folder):
    command = [nvcc, "-cubin", f"-arch=sm_{arch}", "-std=c++20", "-O3", "-DNDEBUG", "-Xptxas", "-v", "--fmad=false",
               "-DRINGBELL_WITH_CUDA=1", "-I", str(root), "-Xcompiler", "-ffp-contract=off", "-o", os.path.join(folder, "kernel.cubin"), str(root / kernel)]
    log = pathlib.Path(folder) / "ptxas.txt"
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as stream:
        child = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        while True:
            # wait4 gives the compiler's own and its waited-for children's peak, which subprocess does not.
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - start > GIVE_UP * MAX_COMPILE_SECONDS:
                child.kill()
            time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, log.read_text(encoding="utf-8")


def main():
    self_check()
    nvcc, log, *archs = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parent.parent
    missing = [kernel for kernel in KERNELS if not (root / kernel).exists()]
    if missing:
        print(f"{missing[0]} does not exist")
        return 1
    errors, text = [], ""
    for kernel, arch in itertools.product(KERNELS, archs or ["80", "90"]):
        arch = re.sub(r"\D.*", "", arch)
        with tempfile.TemporaryDirectory() as folder:
            code, seconds, kilobytes, words = compile_once(nvcc, root, kernel, arch, folder)
        text += f"== {kernel} sm_{arch}\n{words}\n"
        if code != 0:
            print(words)
            errors.append(f"sm_{arch}: nvcc failed with {code}")
            continue
        functions = parse(words)
        for name, is_kernel, registers, stack, spill in functions:
            if is_kernel:
                print(f"sm_{arch} {name}: {registers} registers, {stack} bytes of stack, {spill} bytes spilled")
        print(f"sm_{arch}: compiled in {seconds:.1f} s of processor time, {kilobytes / 1024:.0f} MiB")
        errors += [f"sm_{arch}: {error}" for error in judge(functions)]
        if seconds > MAX_COMPILE_SECONDS:
            errors.append(f"sm_{arch}: {seconds:.0f} s to compile, the budget is {MAX_COMPILE_SECONDS}")
        if kilobytes > MAX_COMPILE_KILOBYTES:
            errors.append(f"sm_{arch}: {kilobytes // 1024} MiB to compile, the budget is {MAX_COMPILE_KILOBYTES // 1024}")
    pathlib.Path(log).write_text(text, encoding="utf-8")
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
