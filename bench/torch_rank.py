# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of torch_symm_mem.py: the barrier, what is timed in which order, and in TorchRank all that is torch's.

The command line, the start of the ranks and what becomes of their times is torch_symm_mem.py.
"""
import collections
import ctypes
import datetime
import json
import mmap
import os
import pathlib
import sys
import time
import warnings

from perf_document import BROKEN, ENVIRONMENT, LOST, Failure

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
CALLS = 64  # of one sample of stream, graph and chain
# NCCL is not used here; should a version of torch load it, it has no multicast either.
ENVIRONMENT_OF_RANKS = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}

Case = collections.namedtuple("Case", "dtype count peer")


def bytes_of(case):
    return case.count * DTYPES[case.dtype]


def rank_environment(variables):
    """What the ranks run under: multicast off whatever was set."""
    # Ranks of one machine: no name server, no network card.
    return {**variables, "GLOO_SOCKET_IFNAME": variables.get("GLOO_SOCKET_IFNAME", "lo"), **ENVIRONMENT_OF_RANKS}


def element(index, rank, call):
    """Whole numbers small enough that sums of 8 ranks are exact in every type. Of an int or of a tensor of indices."""
    return (index * 7 + rank * 13 + call * 31) % 61 - 30


class Barrier:
    """Of processes, by a file that all map: spinning, since a rank that leaves late would lengthen the others' times.

    One word a rank on a line of its own, written by that rank alone: how many barriers it has come to.
    """
    LINE = 64

    @staticmethod
    def create(path, ranks):
        pathlib.Path(path).write_bytes(bytes(ranks * Barrier.LINE))

    def __init__(self, path, ranks, rank=None, limit_s=60.0):
        self.ranks, self.rank, self.limit_s, self.count = ranks, rank, limit_s, 0
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), ranks * self.LINE)).cast("Q")

    def arrived(self):
        return [self.words[rank * self.LINE // 8] for rank in range(self.ranks)]

    def wait(self):
        self.count += 1
        self.words[self.rank * self.LINE // 8] = self.count
        for rank in range(self.ranks):
            self.wait_for(rank)

    def wait_for(self, rank):
        at, turns, deadline = rank * self.LINE // 8, 0, None
        while self.words[at] < self.count:
            turns += 1
            if turns % 1024 == 0:  # more ranks than cores must come on too
                os.sched_yield()
                now = time.monotonic()
                deadline = deadline or now + self.limit_s
                if now > deadline:
                    raise Failure(LOST, f"rank {self.rank} waited {self.limit_s:g} s at barrier {self.count} for rank {rank}")


def one_sample(issue, device, barrier):
    """us of one call"""
    barrier.wait()
    if issue == "host":
        return device.call_and_wait()
    if issue == "stream":
        return device.eager_us(CALLS) / CALLS
    if issue == "chain":
        return device.chain_us(CALLS) / CALLS
    without = device.graph_us(CALLS, with_call=False)
    barrier.wait()
    return (device.graph_us(CALLS, with_call=True) - without) / CALLS


class Measurement:
    """One rank's part. `device` is TorchRank, or what a test puts in its place."""

    def __init__(self, options, device, barrier):
        self.options, self.device, self.barrier, self.calls = options, device, barrier, 0

    def checked(self, run):
        """One run on new values. @return wrong elements of this rank"""
        self.calls += 1
        self.device.fill(self.calls)
        self.barrier.wait()
        run()
        return self.device.wrong(self.calls)

    def one_round(self, case):
        """@return (samples, wrong elements or None)"""
        options, device, wrong = self.options, self.device, 0
        device.select(case)
        if options.issue == "host":
            samples = []
            for index in range(options.warmup + options.iterations):
                if options.check:
                    wrong += self.checked(lambda: samples.append(one_sample("host", device, self.barrier)))
                else:
                    samples.append(one_sample("host", device, self.barrier))
            return samples[options.warmup:], wrong if options.check else None
        runs = {"stream": device.call_and_wait, "graph": device.one_call_graph, "chain": lambda: device.chain_us(CALLS)}
        # Also loads and captures what the timed part needs.
        before = self.checked(runs[options.issue])
        uncounted = max(1, options.warmup)  # the first captures, on each rank at its own pace
        samples = [one_sample(options.issue, device, self.barrier) for _ in range(uncounted + options.iterations)][uncounted:]
        wrong = before + self.checked(runs[options.issue]) if options.check else None
        return samples, wrong

    def all_rounds(self, cases):
        """Rounds outside, rows inside: a machine that changes its mind shows in all rows alike."""
        results = [{"samples": [], "wrong": 0 if self.options.check else None} for _ in cases]
        for _ in range(self.options.rounds):
            for result, case in zip(results, cases):
                samples, wrong = self.one_round(case)
                result["samples"].append(samples)
                if wrong is not None:
                    result["wrong"] += wrong
        return results


class TorchRank:
    """All that is torch's on one rank: buffers, the two operators, events and graphs."""

    def __init__(self, torch, rank, ranks, options, cases, folder):
        from torch import distributed
        from torch.distributed import _symmetric_memory as symmetric

        self.torch, self.rank, self.ranks = torch, rank, ranks
        gpu = options.gpus[rank] if options.gpus else rank
        self.spin_when_synchronising(gpu)
        self.device = torch.device("cuda", gpu)
        torch.cuda.set_device(self.device)
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                                       timeout=datetime.timedelta(seconds=60 + 2 * options.timeout_s))
        self.group = distributed.group.WORLD.group_name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # needed up to 2.6, obsolete after
            if hasattr(symmetric, "enable_symm_mem_for_group"):
                symmetric.enable_symm_mem_for_group(self.group)
        self.shared = {}
        for name in dict.fromkeys(case.dtype for case in cases):
            count = max(case.count for case in cases if case.dtype == name)
            self.shared[name] = symmetric.empty(count, dtype=getattr(torch, name), device=self.device)
            symmetric.rendezvous(self.shared[name], self.group)
        self.stream = torch.cuda.Stream(self.device)
        torch.cuda.set_stream(self.stream)
        self.tick = torch.zeros(1, device=self.device)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graphs = {}

    @staticmethod
    def spin_when_synchronising(gpu):
        """Before the context is there: waiting must not put the thread to sleep."""
        spin = 1  # CU_CTX_SCHED_SPIN
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Failure(ENVIRONMENT, f"no CUDA driver: {error}") from None
        device = ctypes.c_int(0)
        for code in (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), gpu), driver.cuDevicePrimaryCtxSetFlags_v2(device, spin)):
            if code != 0:
                raise Failure(ENVIRONMENT, f"GPU {gpu}: the CUDA driver answers error {code}")

    def select(self, case):
        torch = self.torch
        self.case = case
        self.input = self.shared[case.dtype][:case.count]
        self.source, self.output, self.consumed = (torch.empty_like(self.input, memory_format=torch.contiguous_format) for _ in range(3))
        if case.peer == "torch-two-shot":
            self.output = self.input
        self.index = torch.arange(case.count, device=self.device, dtype=torch.int64)
        self.graphs = {}
        self.checks_consumed = False
        self.stream.synchronize()

    def call(self):
        operators = self.torch.ops.symm_mem
        if self.case.peer == "torch-two-shot":
            operators.two_shot_all_reduce_(self.input, "sum", self.group)
        elif hasattr(operators, "one_shot_all_reduce_out"):
            # Into a buffer that is there: spares torch the allocation.
            operators.one_shot_all_reduce_out(self.input, "sum", self.group, self.output)
        else:
            self.output = operators.one_shot_all_reduce(self.input, "sum", self.group)

    def fill(self, call):
        self.source.copy_(element(self.index, self.rank, call))
        self.input.copy_(self.source)
        if self.case.peer != "torch-two-shot":
            self.output.fill_(float("nan"))
        self.consumed.fill_(float("nan"))
        self.stream.synchronize()

    def wrong(self, call):
        expected = sum(element(self.index, rank, call) for rank in range(self.ranks)).to(self.input.dtype)
        seen = self.consumed if self.checks_consumed else self.output
        return int((seen != expected).sum().item())

    def spin(self):
        while not self.stream.query():
            pass

    def call_and_wait(self):
        begin = time.perf_counter_ns()
        self.call()
        self.spin()
        return (time.perf_counter_ns() - begin) / 1e3

    def between_events(self, enqueue):
        self.begin.record(self.stream)
        enqueue()
        self.end.record(self.stream)
        self.spin()
        return self.begin.elapsed_time(self.end) * 1e3

    def eager_us(self, calls):
        def enqueue():
            for _ in range(calls):
                self.call()

        return self.between_events(enqueue)

    def captured(self, key, enqueue):
        if key not in self.graphs:
            if not self.graphs:  # what a call loads or allocates the first time must not be captured
                self.call()
                self.spin()
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph, stream=self.stream):
                enqueue()
            self.graphs[key] = graph
        return self.graphs[key]

    def graph_us(self, calls, with_call):
        def enqueue():
            for _ in range(calls):
                self.tick.add_(1)
                if with_call:
                    self.call()

        return self.between_events(self.captured(("graph", calls, with_call), enqueue).replay)

    def one_call_graph(self):
        """From the input as it was filled: in place, 64 calls would add up."""
        def enqueue():
            self.input.copy_(self.source)
            self.call()

        return self.between_events(self.captured("one", enqueue).replay)

    def chain_us(self, calls):
        self.checks_consumed = True

        def enqueue():
            for _ in range(calls):
                self.input.copy_(self.source)
                self.call()
                self.consumed.copy_(self.output)

        return self.between_events(self.captured(("chain", calls), enqueue).replay)


def rank_main(rank, ranks, options, cases, folder):
    """In a process of its own: leaves its results, or what went wrong, as a file."""
    folder = pathlib.Path(folder)
    os.environ.update(rank_environment(os.environ))
    try:
        import torch

        try:
            barrier = Barrier(folder / "barrier", ranks, rank, 60 + 2 * options.timeout_s)
            device = TorchRank(torch, rank, ranks, options, cases, folder)
            results = Measurement(options, device, barrier).all_rounds(cases)
            if rank == 0:
                gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
                about = {"gpus": gpus, "cuda_runtime": torch.version.cuda, "torch": torch.__version__}
                (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
            (folder / f"rank{rank}.json").write_text(json.dumps(results), encoding="utf-8")
            barrier.wait()
        except torch.cuda.OutOfMemoryError:
            raise Failure(ENVIRONMENT, "not enough GPU memory for the buffers: take smaller --sizes") from None
        except NotImplementedError as error:
            raise Failure(ENVIRONMENT, f"this PyTorch ({torch.__version__}) has no such call: {error}") from None
        except RuntimeError as error:
            here = any(text in str(error) for text in ("not implemented for", "out of memory"))
            code = ENVIRONMENT if here else BROKEN
            raise Failure(code, str(error).splitlines()[0]) from None
    except Failure as failure:
        (folder / f"failed{rank}.json").write_text(json.dumps([failure.code, str(failure)]), encoding="utf-8")
        sys.exit(failure.code)
