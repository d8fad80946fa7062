#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Includes follow the arrow device <- host <- runtime <- {tests, bench, tools}, and CUDA stays in its files.

Also: quoted includes go by path from the root and exist; nothing outside *.cuh and *.cu includes a CUDA header, apart
from *_cuda.* and tests/gpu; only device/config.hpp asks which compiler reads it (a guard that is an #error may too, the
installed headers do not have it, and device/math/ may pick an intrinsic by __CUDA_ARCH__).
"""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "device": {"device"},
    "host": {"device", "host"},
    "runtime": {"device", "host", "runtime"},
    "tools": {"device", "host", "runtime", "tools"},
    "bench": {"device", "runtime", "bench"},
    "tests": {"device", "host", "runtime", "tools", "bench", "tests"},
}
GENERATED = {"runtime/version.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
CUDA_HEADER = re.compile(r"^(cuda|cub/|thrust/|nvml|nccl|cupti|cooperative_groups)")
# What a worker runs has no OS, allocation or exceptions: freestanding headers, and <atomic> in the CPU memory operations.
DEVICE_STD = {"array", "atomic", "bit", "climits", "cmath", "compare", "concepts", "cstddef", "cstdint", "cstring", "limits",
              "span", "tuple", "type_traits", "utility", "version", "emmintrin.h", "immintrin.h", "xmmintrin.h"}
PUBLIC = re.compile(r"^((device|host)/ringbell_\w+\.hpp|runtime/ringbell\.h(pp)?)$")
# Public types (device/ringbell_*.hpp) are what applications see: they may use the standard library.
DEVICE_EXEMPT = re.compile(r"^device/(ringbell_\w+\.hpp|cuda/)|_cpu\.hpp$|\.cuh$|\.cu$")


def check_text(name, text, exists):
    """@return errors of one file; `exists` tells whether a path from the root is a file."""
    errors = []
    layer = name.split("/")[0]
    for kind, target in INCLUDE.findall(text):
        if kind == '"':
            if "/" not in target and PUBLIC.search(name) and (exists(f"device/{target}") or exists(f"host/{target}")):
                continue  # public headers stand beside each other when installed
            if "/" not in target:
                errors.append(f"{name}: \"{target}\": quoted includes go by path from the root")
                continue
            if target.split("/")[0] not in MAY_INCLUDE[layer]:
                errors.append(f"{name}: \"{target}\": {layer}/ may include only {', '.join(sorted(MAY_INCLUDE[layer]))}")
            if target not in GENERATED and not exists(target):
                errors.append(f"{name}: \"{target}\" does not exist")
        elif CUDA_HEADER.match(target):
            cuda_file = name.endswith((".cuh", ".cu")) or re.search(r"_cuda\.[ch]pp$|/cuda_[a-z_]+\.[ch]pp$", name)
            if not cuda_file and not name.startswith("tests/gpu/"):
                errors.append(f"{name}: <{target}>: CUDA headers belong in *.cuh, *.cu and *_cuda.*")
        elif layer == "device" and not DEVICE_EXEMPT.search(name) and target not in DEVICE_STD:
            errors.append(f"{name}: <{target}>: device/ is freestanding")
    code = re.sub(r"//.*", "", text)
    code = re.sub(r"#\s*if\w*\s.*__CUDACC__.*\n\s*#\s*error", "", code)
    if name.startswith("device/math/"):
        code = code.replace("__CUDA_ARCH__", "")
    if re.search(r"__CUDACC__|__CUDA_ARCH__", code) and name != "device/config.hpp" and not PUBLIC.search(name) and not name.endswith((".cuh", ".cu")):
        errors.append(f"{name}: only device/config.hpp asks which compiler reads it")
    return errors


def self_check():
    """The checker finds what it is for."""
    everything = lambda _: True  # noqa: E731
    bad = [
        ("device/a.hpp", '#include "host/env.hpp"'),
        ("host/a.hpp", '#include "runtime/plan.hpp"'),
        ("host/a.cpp", '#include "env.hpp"'),
        ("device/a.hpp", "#include <cuda_runtime.h>"),
        ("device/a.hpp", "#include <vector>"),
        ("host/a.cpp", "#ifdef __CUDACC__"),
        ("bench/a.cpp", '#include "host/env.hpp"'),
    ]
    for name, text in bad:
        assert check_text(name, text, everything), f"not found: {name}: {text}"
    assert check_text("host/a.cpp", '#include "host/none.hpp"', lambda _: False)
    assert not check_text("host/a.cpp", '#include "device/config.hpp"\n#include <vector>', everything)


def main():
    self_check()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    errors, count = [], 0
    for layer in MAY_INCLUDE:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in {".hpp", ".cpp", ".cuh", ".cu", ".h"}:
                continue
            name = path.relative_to(root).as_posix()
            if name.startswith(("runtime/examples/", "tests/package/")):
                continue  # read the installed, flat headers
            count += 1
            errors += check_text(name, path.read_text(encoding="utf-8"), lambda target: (root / target).is_file())
    for error in errors:
        print(error)
    print(f"{count} files, {len(errors)} errors")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
