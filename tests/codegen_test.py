#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Each memory operation of a CUDA worker is the instruction that device/mem/ops_cuda.cuh says, and the resident kernel
touches global memory only through them.

usage: codegen_test.py NVCC [ARCH]      reads PTX text; needs no GPU.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNEL = "device/cuda/persistent_kernel.cu"
PROBE = "tests/codegen/probe.cu"
OPERATIONS = "device/mem/ops_cuda.cuh"

# Instructions that matter, in order: order, scope, space, width.
EXPECTED = {
    "load_relaxed": ["ld.relaxed.sys.global.u64"],
    "load_acquire": ["ld.acquire.sys.global.u64"],
    "store_relaxed": ["st.relaxed.sys.global.u64"],
    "store_release": ["fence.acq_rel.sys", "st.relaxed.sys.global.u64"],
    "store_after_reads": ["st.relaxed.sys.global.u64"],
    "fence_seq_cst": ["fence.sc.sys"],
    "compare_exchange_acquire": ["atom.acquire.gpu.global.cas.b64"],
    "compare_exchange_release": ["fence.acq_rel.gpu", "atom.relaxed.gpu.global.cas.b64"],
    "publish_ll": ["st.relaxed.sys.global.v2.u64"],
    "read_ll": ["ld.relaxed.sys.global.v2.u64"],
    "publish_quad": ["st.relaxed.sys.global.v2.u64"],
    "publish_flag_quad": ["fence.acq_rel.sys", "st.relaxed.sys.global.v2.u64"],
    "read_quad": ["ld.relaxed.sys.global.v2.u64"],
    "read_flag_quad": ["ld.relaxed.sys.global.v2.u64"],
    "read_command_quad": ["ld.relaxed.sys.global.b128"],
    "publish_completion": ["fence.acq_rel.sys", "st.relaxed.sys.global.b128"],
    "publish_completion_of_nothing": ["st.relaxed.sys.global.b128"],
    "publish_completion_gpu": ["fence.acq_rel.gpu", "st.relaxed.sys.global.b128"],
    "load_user_u8": ["ld.relaxed.sys.global.u8"],
    "load_user_u16": ["ld.relaxed.sys.global.u16"],
    "load_user_u32": ["ld.relaxed.sys.global.u32"],
    "load_user_u64": ["ld.relaxed.sys.global.u64"],
    "load_user_quad": ["ld.relaxed.sys.global.v2.u64"],
    "store_user_u8": ["st.global.u8"],
    "store_user_u16": ["st.global.u16"],
    "store_user_u32": ["st.global.u32"],
    "store_user_u64": ["st.global.u64"],
    "store_user_quad": ["st.global.v2.u64"],
    "now_ns": ["mov.u64 %globaltimer"],
    "pause": [],
    "idle_pause": ["nanosleep.u32"],
}
# The kernel's own state between two launches (copy_persistent): plain, since a launch orders it.
PLAIN_WORD = {"ld.global.u64"}


def instructions(text):
    """@return the accesses to global or generic memory, fences, sleeps and clock reads of a PTX text, in order."""
    found = []
    for line in text.splitlines():
        for part in re.split(r"[;{}]", line.split("//")[0]):
            words = part.split()
            if words and words[0].startswith("@"):
                words = words[1:]
            if not words:
                continue
            op = words[0]
            if "%globaltimer" in part:
                found.append("mov.u64 %globaltimer")
            elif re.match(r"(fence|membar|nanosleep)\b", op):
                found.append(op)
            elif re.match(r"(ld|ldu|st|atom|red)\.", op) and not re.search(r"\.(param|shared|local|const)\b", op):
                found.append(op)
    return found


def entries(ptx):
    """@return {entry name: body}"""
    return {name: body for name, body in re.findall(r"\.entry (\w+)\(.*?\)\s*(?:\.\w+[^\n{]*\s*)*\{(.*?)\n\}", ptx, re.DOTALL)}


def compile_ptx(nvcc, arch, source, folder):
    out = pathlib.Path(folder) / (pathlib.Path(source).stem + ".ptx")
    subprocess.run([nvcc, "-ptx", f"-arch=sm_{arch}", "-std=c++20", "-O3", "--fmad=false", "-I", str(ROOT), "-o", str(out),
                    str(ROOT / source)], check=True)
    return out.read_text(encoding="utf-8")


def check_probes(ptx, expected):
    errors, bodies = [], entries(ptx)
    for name, wanted in expected.items():
        body = bodies.get(f"probe_{name}")
        if body is None:
            errors.append(f"{PROBE}: no probe_{name}")
            continue
        got = instructions(body)
        if got != wanted:
            errors.append(f"{name}: {got}, expected {wanted}")
    return errors


def check_all_probed(header):
    public = header.split("private:")[0]
    names = set(re.findall(r"__device__ static [\w:]+ (\w+)\(", public))
    return [f"{OPERATIONS}: {name} has no probe" for name in sorted(names - set(EXPECTED))]


def check_kernel(ptx):
    allowed = {op for ops in EXPECTED.values() for op in ops} | PLAIN_WORD
    errors = []
    for op in instructions(ptx):
        # Generic accesses reach the kernel's argument and shared storage through their addresses. They cannot be told from
        # others here; user and window memory is never accessed so, but by the operations above.
        if op in allowed or re.fullmatch(r"(ld|st)\.(v[24]\.)?u(8|16|32|64)", op):
            continue
        errors.append(f"{KERNEL}: {op}")
    return sorted(set(errors))


def check_poll(ptx):
    """The queue is polled by one 16-byte load; between two polls there is a sleep and no fence."""
    loads = len(re.findall(r"ld\.relaxed\.sys\.global\.b128", ptx))
    sleeps = len(re.findall(r"nanosleep", ptx))
    return [] if loads >= 1 and sleeps == 1 else [f"{KERNEL}: {loads} 16-byte loads and {sleeps} sleeps, one poll expected"]


def check_lines(ptx):
    """Stores of lines: of the ring one in LL, in short LL and in Simple, of one-shot one in LL and in Simple; in LL128 of
    each one for lanes that are together, and for those that are apart one for data and one, behind a fence, for the flag.
    More would mean that the lanes of an LL128 line part before their store, and the flag could leave before the data."""
    wanted_stores, wanted_asked = 3 + 2 + 2 * 3, 2
    stores = len(re.findall(r"st\.relaxed\.sys\.global\.v2\.u64", ptx))
    asked = len(re.findall(r"activemask", ptx))
    if stores == wanted_stores and asked == wanted_asked:
        return []
    return [f"{KERNEL}: {stores} stores of lines and {asked} looks at the active lanes, {wanted_stores} and {wanted_asked} "
            "expected"]


def self_check():
    assert instructions("{ .reg .b128 pair; ld.relaxed.sys.global.b128 pair, [%rd1]; }") == ["ld.relaxed.sys.global.b128"]
    assert instructions("@%p1 ld.global.nc.u32 %r1, [%rd1];\n ld.shared.u32 %r1, [%r2];") == ["ld.global.nc.u32"]
    sample = ".visible .entry probe_pause(\n .param .u64 p\n)\n{\n fence.sc.sys;\n}\n"
    assert check_probes(sample, {"pause": []}) and check_probes(sample, {"now_ns": []})
    assert not check_probes(sample, {"pause": ["fence.sc.sys"]})
    assert check_kernel("ld.global.nc.u64 %rd1, [%rd2];") and not check_kernel("ld.relaxed.sys.global.u64 %rd1, [%rd2];")
    assert check_all_probed("__device__ static void store_twice(std::uint64_t*)")


def main():
    self_check()
    nvcc, *rest = sys.argv[1:]
    arch = re.sub(r"\D.*", "", rest[0]) if rest else "80"
    errors = check_all_probed((ROOT / OPERATIONS).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        errors += check_probes(compile_ptx(nvcc, arch, PROBE, folder), EXPECTED)
        kernel = compile_ptx(nvcc, arch, KERNEL, folder)
        errors += check_kernel(kernel) + check_poll(kernel) + check_lines(kernel)
    for error in errors:
        print(error)
    print(f"{len(EXPECTED)} operations for sm_{arch}, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
