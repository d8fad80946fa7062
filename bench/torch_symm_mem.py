#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's symmetric-memory AllReduce, one-shot and two-shot, timed the way `ringbell perf` times ours.

Starts its ranks itself, one process a GPU, checks every element and writes perf's JSON. Needs PyTorch >= 2.6 with CUDA;
nothing else of the project does. Multicast stays off. One rank is torch_rank.py.
example: python3 bench/torch_symm_mem.py --ranks 2 --sizes 8,1K,64K,1M -d float32 --issue graph -J torch-graph.json
exit: 0 ok, 1 wrong data, 2 broken, 3 environment, 4 time-out or lost rank, 64 usage
"""
import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import perf_document  # noqa: E402
from perf_document import BROKEN, ENVIRONMENT, LOST, OK, USAGE, WRONG, Failure  # noqa: E402
from torch_rank import CALLS, DTYPES, ENVIRONMENT_OF_RANKS, Barrier, Case, bytes_of, rank_environment, rank_main  # noqa: E402

PEERS = ("torch-one-shot", "torch-two-shot")
ISSUES = ("host", "stream", "graph", "chain")
IN_PLACE = {"torch-one-shot": False, "torch-two-shot": True}
SOURCES = ("bench/torch_symm_mem.py", "bench/torch_rank.py", "bench/perf_document.py")
ALIGNMENT = 4  # bytes: the operators take whole multiples only
MOST_RANKS = 8
METHODS = {
    "host": "time = one call alone, until the stream is empty (spinning); every iteration starts at a barrier",
    "stream": f"time = {CALLS} eager calls back to back between two events, divided by {CALLS}",
    "graph": f"time = a CUDA graph of {CALLS} pairs of a one-element kernel and a call, less the same graph without the calls, "
             f"divided by {CALLS}",
    "chain": f"time = a CUDA graph of {CALLS} times producer kernel, call, consumer kernel between two events, divided by {CALLS}",
}
METHOD_END = "counts the slowest rank; p50 over {iterations} iterations in each of {rounds} rounds after {warmup} warm-up calls; {check}"
CHECKS = {"host": "new values before every call, every rank's whole output checked after it",
          "chain": "every rank's whole output checked before and after the timed chains, which rewrite their input",
          "stream": "every rank's whole output of one call checked before and after the timed ones",
          "graph": "every rank's whole output of one call in a graph checked before and after the timed ones"}


# ---- command line ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Options:
    ranks: int
    gpus: list
    sizes: list
    dtypes: list
    peers: list
    issue: str
    iterations: int
    warmup: int
    rounds: int
    check: bool
    json_path: str
    commit: str
    timeout_s: float


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(USAGE, message + "; see --help")


def parse_size(option, text):
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text, re.IGNORECASE | re.ASCII)
    if not found:
        raise Failure(USAGE, f"{option} '{text}': a size is a whole number with an optional K, M or G (1024), e.g. 8, 64K, 1M")
    value = int(found.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[found.group(2).upper()]
    if value >= 1 << 63:
        raise Failure(USAGE, f"{option} '{text}': does not fit 64 bits")
    return value


def parse_whole(option, text, minimum, maximum):
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not minimum <= int(text) <= maximum:
        raise Failure(USAGE, f"{option} '{text}': a whole number from {minimum} to {maximum}")
    return int(text)


def parse_choice(option, text, names):
    if text not in names:
        raise Failure(USAGE, f"{option} '{text}': one of {', '.join(names)}")
    return text


def parse_list(option, text, names=None):
    parts = text.split(",")
    for part in parts:
        if not part:
            raise Failure(USAGE, f"{option} '{text}': a list is values with commas between them and no blanks")
        if names is not None:
            parse_choice(option, part, names)
    return parts


def read_options(arguments):
    parser = Parser(prog="torch_symm_mem.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", help=f"ranks to start, 2 to {MOST_RANKS}; without: one per GPU")
    parser.add_argument("--gpus", help="CUDA devices of the ranks in order, e.g. 0,1")
    parser.add_argument("--sizes", default="8,64,512,4K,32K,256K,2M,16M", help="bytes; K, M, G are powers of 1024 (%(default)s)")
    parser.add_argument("-n", "--iters", default="20", help="counted iterations of a row in a round (20)")
    parser.add_argument("-w", "--warmup_iters", default="5", help="iterations before those (5)")
    parser.add_argument("--rounds", default="5", help="times that all rows are measured, in turn (5)")
    parser.add_argument("-d", "--datatype", default="float32", help=f"list of {', '.join(DTYPES)} (float32)")
    parser.add_argument("--peers", default=",".join(PEERS), help="list (%(default)s)")
    parser.add_argument("--issue", default="host", help=f"one of {', '.join(ISSUES)} (host)")
    parser.add_argument("-c", "--check", default="1", help="1: check every rank's whole output; 0: none (1)")
    parser.add_argument("-J", "--output_file", help="write the results as JSON")
    parser.add_argument("--commit", help="that these files are of; needed with -J outside a git repository")
    parser.add_argument("--timeout", default="30", help="seconds a call may take (30)")
    given = parser.parse_args(arguments)
    if given.output_file == "":
        raise Failure(USAGE, "-J '': the name of a file")
    gpus = [parse_whole("--gpus", part, 0, 1023) for part in parse_list("--gpus", given.gpus)] if given.gpus is not None else []
    if len(set(gpus)) != len(gpus):
        raise Failure(USAGE, f"--gpus '{given.gpus}': one rank a GPU")
    ranks = parse_whole("--ranks", given.ranks, 2, MOST_RANKS) if given.ranks is not None else len(gpus)
    if gpus and len(gpus) != ranks:
        raise Failure(USAGE, f"--gpus '{given.gpus}': {ranks} ranks take {ranks} GPUs")
    if gpus and ranks < 2:
        raise Failure(USAGE, f"--gpus '{given.gpus}': two GPUs or more")
    most = (1 << 31) - 1
    return Options(ranks=ranks, gpus=gpus, sizes=[parse_size("--sizes", part) for part in parse_list("--sizes", given.sizes)],
                   dtypes=parse_list("-d", given.datatype, tuple(DTYPES)), peers=parse_list("--peers", given.peers, PEERS),
                   issue=parse_choice("--issue", given.issue, ISSUES),
                   iterations=parse_whole("-n", given.iters, 1, most), warmup=parse_whole("-w", given.warmup_iters, 0, most),
                   rounds=parse_whole("--rounds", given.rounds, 1, most), check=parse_whole("-c", given.check, 0, 1) == 1,
                   json_path=given.output_file, commit=given.commit, timeout_s=parse_whole("--timeout", given.timeout, 1, 10**6))


# ---- what is measured ------------------------------------------------------------------------------------------------
def plan(options):
    """@return (cases in order, notes on what is left out)"""
    cases, notes = [], []
    for dtype in options.dtypes:
        for size in options.sizes:
            count = size // DTYPES[dtype]
            if count == 0 or count * DTYPES[dtype] % ALIGNMENT != 0:
                notes.append(f"{size} bytes of {dtype} are no multiple of {ALIGNMENT} bytes: row skipped")
            else:
                cases += [Case(dtype, count, peer) for peer in options.peers]
    if not cases:
        raise Failure(USAGE, f"--sizes {','.join(map(str, options.sizes))}: none can be measured; multiples of {ALIGNMENT} bytes")
    if len(set(cases)) != len(cases):
        raise Failure(USAGE, "--sizes, -d or --peers names the same row twice")
    return cases, notes


def merge(results_of_ranks):
    """@param results_of_ranks all_rounds() of each rank  @return (us of the slowest rank per iteration, wrong) of each case"""
    merged = []
    for results in zip(*results_of_ranks):
        if len({tuple(map(len, result["samples"])) for result in results}) != 1:
            raise Failure(BROKEN, "the ranks did not measure the same number of iterations")
        samples = [max(iteration) for rounds in zip(*(result["samples"] for result in results)) for iteration in zip(*rounds)]
        if not perf_document.is_finite(samples):
            raise Failure(BROKEN, "a time is no number")
        wrong = None if results[0]["wrong"] is None else sum(result["wrong"] for result in results)
        merged.append((samples, wrong))
    return merged


def rows_of(options, cases, merged, ranks, torch_version, environment):
    rows = []
    for case, (samples, wrong) in zip(cases, merged):
        fields = perf_document.times(samples)
        one_call = options.issue in ("host", "stream")
        bandwidths = perf_document.bandwidths(bytes_of(case), fields["p50_us"] if one_call else 0, ranks)
        rows.append({"bytes": bytes_of(case), "count": case.count, "dtype": case.dtype, "op": "sum", "algo": case.peer[len("torch-"):],
                     "proto": "-", "issue": options.issue, **({"chain": "graph"} if options.issue == "chain" else {}), "peer": case.peer, "ranks": ranks, "device": "cuda", "channels": None,
                     "in_place": IN_PLACE[case.peer], "iters": options.iterations, "rounds": options.rounds, **fields, **bandwidths,
                     "wrong": wrong, "hash": None, "peer_version": torch_version, "peer_env": environment, "nvls": False, "l2": "warm"})
    return rows


def method_text(options):
    check = CHECKS[options.issue] if options.check else "outputs not checked"
    return f"{METHODS[options.issue]}; " + METHOD_END.format(iterations=options.iterations, rounds=options.rounds,
                                                             warmup=options.warmup, check=check)


def table_text(rows):
    text = f"#{'size':>11}{'type':>10}{'peer':>16}{'issue':>8}{'p50 (us)':>11}{'p99 (us)':>11}{'busbw':>9}{'#wrong':>8}\n"
    for row in rows:
        bandwidth = "-" if row["busbw_gbps"] is None else f"{row['busbw_gbps']:.2f}"
        wrong = "-" if row["wrong"] is None else str(row["wrong"])
        text += (f"{row['bytes']:>12}{row['dtype']:>10}{row['peer']:>16}{row['issue']:>8}{row['p50_us']:>11.2f}{row['p99_us']:>11.2f}"
                 f"{bandwidth:>9}{wrong:>8}\n")
    return text


# ---- torch -----------------------------------------------------------------------------------------------------------
def import_torch(options):
    """@return (torch, number of ranks)"""
    try:
        import torch
    except ImportError as error:
        raise Failure(ENVIRONMENT, f"no PyTorch here ({error}): install torch >= 2.6 with CUDA, e.g. pip install torch") from None
    count = torch.cuda.device_count()
    ranks = options.ranks or count
    if count == 0:
        raise Failure(ENVIRONMENT, f"no GPU: PyTorch {torch.__version__} sees none")
    if count < max(ranks, 2) or any(gpu >= count for gpu in options.gpus):
        raise Failure(ENVIRONMENT, f"{max(ranks, 2)} ranks" + (f" on GPUs {','.join(map(str, options.gpus))}" if options.gpus else "") +
                      f" need a GPU each, and there {'is' if count == 1 else 'are'} {count}")
    try:
        from torch.distributed import _symmetric_memory as symmetric
        missing = [name for name in ("empty", "rendezvous") if not hasattr(symmetric, name)]
        missing += [name for name in ("one_shot_all_reduce", "two_shot_all_reduce_") if not hasattr(torch.ops.symm_mem, name)]
    except ImportError as error:
        missing = [str(error)]
    if missing:
        raise Failure(ENVIRONMENT, f"PyTorch {torch.__version__} has no symmetric memory as needed here ({', '.join(missing)}): 2.6 or newer")
    return torch, min(ranks, MOST_RANKS)


def driver_cuda():
    """"13.0", or None"""
    try:
        version = ctypes.c_int(0)
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            return f"{version.value // 1000}.{version.value % 1000 // 10}"
    except OSError:
        pass
    return None


# ---- all ranks -------------------------------------------------------------------------------------------------------
def failure_of_ranks(folder, ranks, otherwise):
    """The first cause that a rank left; a rank that only waited for another is no cause."""
    found = []
    for rank in range(ranks):
        path = folder / f"failed{rank}.json"
        if path.exists():
            code, text = json.loads(path.read_text(encoding="utf-8"))
            found.append((code == LOST, rank, code, text))
    if not found:
        return otherwise
    _, rank, code, text = min(found)
    return Failure(code, f"rank {rank}: {text}")


def watch(processes, barrier, folder, limit_s, clock=time.monotonic):
    """Until all ranks have ended. @param processes with join(timeout) that raises when one fails, as torch's spawn gives"""
    seen, since = None, clock()
    while True:
        try:
            if processes.join(timeout=0.2):
                return
        except Exception as error:  # torch raises types of its own; it has ended the other ranks by then
            lines = [type(error).__name__, *str(error).split("\n")]
            otherwise = Failure(LOST, "a rank ended: " + [line.strip() for line in lines if line.strip()][-1])
            raise failure_of_ranks(folder, barrier.ranks, otherwise) from None
        arrived = barrier.arrived()
        if arrived != seen:
            seen, since = arrived, clock()
        elif clock() - since > limit_s:
            for process in processes.processes:
                process.kill()
            late = [rank for rank, count in enumerate(arrived) if count == min(arrived)]
            raise Failure(LOST, f"no rank came to a barrier for {limit_s:g} s; behind: rank {', '.join(map(str, late))}")


def measure(torch, ranks, options, cases):
    """@return (results of each rank, what rank 0 says of torch and the GPUs)"""
    from torch import multiprocessing

    with tempfile.TemporaryDirectory(prefix="torch-symm-mem-") as name:
        folder = pathlib.Path(name)
        Barrier.create(folder / "barrier", ranks)
        barrier = Barrier(folder / "barrier", ranks)
        processes = multiprocessing.spawn(rank_main, args=(ranks, options, cases, name), nprocs=ranks, join=False)
        watch(processes, barrier, folder, 120 + 2 * options.timeout_s)
        results = [json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]
        return results, json.loads((folder / "about.json").read_text(encoding="utf-8"))


def build_document(options, arguments, rows, about, commit):
    environment = perf_document.environment(rank_environment(os.environ), ("RINGBELL_", "CUDA_", "NCCL_", "TORCH_"))
    return perf_document.document(
        rows, about_machine=perf_document.machine(about["gpus"], driver_cuda(), about["cuda_runtime"]), commit=commit[0], dirty=commit[1],
        version=perf_document.version_of(perf_document.ROOT), env=environment, method=method_text(options),
        command=perf_document.command_text("bench/torch_symm_mem.py", arguments))


def run(arguments):
    options = read_options(arguments)
    cases, notes = plan(options)
    for note in notes:
        print(f"torch_symm_mem.py: note: {note}", file=sys.stderr)
    torch, ranks = import_torch(options)
    commit = None
    if options.json_path is not None:
        commit = perf_document.commit_of(perf_document.ROOT, options.commit, SOURCES)
        perf_document.check_writable(options.json_path)
    os.environ.update(rank_environment(os.environ))
    results, about = measure(torch, ranks, options, cases)
    rows = rows_of(options, cases, merge(results), ranks, about["torch"], ENVIRONMENT_OF_RANKS)
    print(f"# PyTorch {about['torch']}, {ranks} ranks on {', '.join(sorted(set(about['gpus'])))}, multicast off\n"
          f"# method: {method_text(options)}\n" + table_text(rows), end="")
    if options.json_path is not None:
        perf_document.write(options.json_path, build_document(options, arguments, rows, about, commit))
    return WRONG if any(row["wrong"] for row in rows) else OK


def main(arguments):
    try:
        return run(arguments)
    except Failure as failure:
        print(f"torch_symm_mem.py: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 128 + 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
