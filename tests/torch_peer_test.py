#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""bench/torch_symm_mem.py without PyTorch and without a GPU: command line, order of measurement, merging of ranks, the JSON
document, exit codes. A made-up device takes the place of TorchRank; threads or processes that of ranks.
"""
import contextlib
import copy
import io
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]
import perf_document  # noqa: E402
import results_schema_test as schema  # noqa: E402
import torch_rank  # noqa: E402
import torch_symm_mem as program  # noqa: E402

SCRIPT = ROOT / "bench/torch_symm_mem.py"
ABOUT = {"gpus": ["GPU A", "GPU A"], "cuda_runtime": "12.8", "torch": "2.9.0"}


def options(*words):
    return program.read_options(list(words))


class FakeDevice:
    """Adds by a list that the ranks share. Every way to issue takes another known time."""

    def __init__(self, rank, ranks, shared, slower=0.0, broken=False):
        self.rank, self.ranks, self.shared, self.slower, self.broken, self.log = rank, ranks, shared, slower, broken, []
        self.filled = None

    def select(self, case):
        self.count = case.count
        self.log.append(case)

    def fill(self, call):
        self.filled = call

    def call_and_wait(self):
        self.log.append("call")
        return 10.0 + self.slower

    def eager_us(self, calls):
        return calls * (4.0 + self.slower)

    def graph_us(self, calls, with_call):
        self.log.append(with_call)
        return calls * (1.0 + (2.0 + self.slower if with_call else 0.0))

    def one_call_graph(self):
        return self.call_and_wait()

    def chain_us(self, calls):
        return calls * (7.0 + self.slower)

    def wrong(self, call):
        assert call == self.filled
        expected = [sum(torch_rank.element(index, rank, call) for rank in range(self.ranks)) for index in range(self.count)]
        seen = list(expected)
        if self.broken:
            seen[-1] += 1
        return sum(one != other for one, other in zip(seen, expected))


def measured(given, cases, **of_last_rank):
    """all_rounds() of two ranks in threads, by the real barrier."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/barrier"
        torch_rank.Barrier.create(path, 2)
        devices = [FakeDevice(0, 2, None), FakeDevice(1, 2, None, **of_last_rank)]
        results = [None, None]

        def one(rank):
            results[rank] = torch_rank.Measurement(given, devices[rank], torch_rank.Barrier(path, 2, rank, 20)).all_rounds(cases)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results, devices


def main_of(*words, results=None):
    """@return (exit code, stdout, stderr) of the program with torch and its ranks replaced"""
    def measure(_torch, _ranks, given, cases):
        return results(given, cases), ABOUT

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.dict(os.environ), \
            mock.patch.object(program, "import_torch", lambda _: (None, 2)), mock.patch.object(program, "measure", measure), \
            mock.patch.object(perf_document, "commit_of", lambda *_: ("a" * 40, False)):
        code = program.main(list(words))
    return code, out.getvalue(), err.getvalue()


class CommandLine(unittest.TestCase):
    def refused(self, *words):
        with self.assertRaises(program.Failure) as caught:
            options(*words)
        self.assertEqual(caught.exception.code, 64)
        return str(caught.exception)

    def test_sizes_are_read_as_perf_reads_them(self):
        self.assertEqual(options("--sizes", "8,1K,64k,1M,2G,16B,4KB").sizes, [8, 1024, 65536, 1 << 20, 2 << 30, 16, 4096])
        for text in ("", "8,,16", "K", "1.5K", "-8", "8T", "0x8", "8 ", "1KK", "99999999999G"):
            self.assertIn("--sizes", self.refused("--sizes", text))

    def test_defaults_and_every_option(self):
        given = options()
        self.assertEqual((given.ranks, given.iterations, given.warmup, given.rounds, given.issue, given.check), (0, 20, 5, 5, "host", True))
        self.assertEqual(given.peers, ["torch-one-shot", "torch-two-shot"])
        given = options("--ranks", "4", "--gpus", "3,2,1,0", "-n", "7", "-w", "0", "--rounds", "9", "-d", "bfloat16,float16", "--issue", "chain",
                        "--peers", "torch-two-shot", "-c", "0", "-J", "x.json", "--commit", "abcdef0", "--timeout", "3")
        self.assertEqual((given.ranks, given.gpus, given.iterations, given.warmup, given.rounds), (4, [3, 2, 1, 0], 7, 0, 9))
        self.assertEqual((given.dtypes, given.issue, given.peers, given.check), (["bfloat16", "float16"], "chain", ["torch-two-shot"], False))
        self.assertEqual((given.json_path, given.commit, given.timeout_s), ("x.json", "abcdef0", 3))
        self.assertEqual(options("--gpus", "0,1").ranks, 2)

    def test_bad_values_are_named_with_what_is_allowed(self):
        for words, text in ((("--ranks", "1"), "from 2 to 8"), (("--ranks", "9"), "'9'"), (("-n", "0"), "-n '0'"), (("--rounds", "0"), "--rounds"),
                            (("-d", "float64"), "float32, bfloat16, float16"), (("--issue", "after"), "host, stream, graph, chain"),
                            (("--issue", "host,graph"), "'host,graph'"), (("--peers", "nccl"), "torch-one-shot"), (("-c", "2"), "-c '2'"),
                            (("-J", ""), "name of a file"), (("--gpus", "0,0"), "one rank a GPU"), (("--ranks", "3", "--gpus", "0,1"), "3 ranks"),
                            (("--what",), "--what"), (("extra",), "extra"), (("--timeout", "0"), "--timeout")):
            self.assertIn(text, self.refused(*words))

    def test_sizes_that_the_operators_do_not_take_are_skipped_and_told(self):
        cases, notes = program.plan(options("--sizes", "2,8,14", "-d", "float32,bfloat16", "--peers", "torch-one-shot"))
        self.assertEqual([(case.dtype, torch_rank.bytes_of(case)) for case in cases], [("float32", 8), ("float32", 12), ("bfloat16", 8)])
        self.assertEqual(len(notes), 3)
        for words in (("--sizes", "2"), ("--sizes", "8,8"), ("--sizes", "8,9")):
            with self.assertRaises(program.Failure) as caught:
                program.plan(options(*words))
            self.assertEqual(caught.exception.code, 64)


class Environment(unittest.TestCase):
    def run_main(self, *words, torch):
        """With `torch` as that module; None: there is none."""
        err = io.StringIO()
        with contextlib.redirect_stderr(err), mock.patch.dict(sys.modules, {"torch": torch}):
            code = program.main(list(words))
        return code, err.getvalue()

    @staticmethod
    def torch_with(gpus):
        torch = types.ModuleType("torch")
        torch.__version__ = "2.3"
        torch.cuda = types.SimpleNamespace(device_count=lambda: gpus)
        return torch

    def test_without_torch_the_code_is_3_and_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch.py").write_text("raise ImportError('none')", encoding="utf-8")
            done = subprocess.run([sys.executable, SCRIPT, "--ranks", "2", "--sizes", "8"], capture_output=True, text=True, timeout=60,
                                  check=False, env={**os.environ, "PYTHONPATH": folder})
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr, r"^torch_symm_mem.py: no PyTorch here \(none\): install torch >= 2\.6.*\n$")
        self.assertEqual(self.run_main(torch=None)[0], 3)

    def test_without_gpus_or_with_too_few_the_code_is_3(self):
        self.assertEqual(self.run_main(torch=self.torch_with(0)), (3, "torch_symm_mem.py: no GPU: PyTorch 2.3 sees none\n"))
        for words, count, text in ((("--ranks", "3"), 2, "3 ranks need a GPU each, and there are 2"), ((), 1, "2 ranks need a GPU each, and there is 1"),
                                   (("--gpus", "1,2"), 2, "on GPUs 1,2 need a GPU each")):
            code, err = self.run_main(*words, torch=self.torch_with(count))
            self.assertEqual(code, 3)
            self.assertIn(text, err)

    def test_a_torch_without_symmetric_memory_is_told_with_its_version(self):
        code, err = self.run_main(torch=self.torch_with(2))
        self.assertEqual(code, 3)
        self.assertIn("PyTorch 2.3 has no symmetric memory", err)

    def test_bad_usage_is_told_before_torch_is_looked_for(self):
        code, err = self.run_main("--sizes", "x", torch=None)
        self.assertEqual((code, err.split(":")[1]), (64, " --sizes 'x'"))

    def test_multicast_is_off_whatever_was_set(self):
        ranks = torch_rank.rank_environment({"TORCH_SYMM_MEM_DISABLE_MULTICAST": "0", "GLOO_SOCKET_IFNAME": "eth7", "A": "b"})
        self.assertEqual(ranks, {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0", "GLOO_SOCKET_IFNAME": "eth7", "A": "b"})


def run_barriers(path, ranks, rank, turns, failures):
    barrier = torch_rank.Barrier(path, ranks, rank, 30)
    for turn in range(1, turns + 1):
        barrier.wait()
        if min(barrier.arrived()) < turn or max(barrier.arrived()) > turn + 1:
            failures.value += 1


class Ranks(unittest.TestCase):
    def test_no_process_passes_a_barrier_before_all_have_come(self):
        context = multiprocessing.get_context("fork")
        with tempfile.TemporaryDirectory() as folder:
            torch_rank.Barrier.create(f"{folder}/b", 3)
            failures = context.Value("i", 0)
            processes = [context.Process(target=run_barriers, args=(f"{folder}/b", 3, rank, 100, failures)) for rank in range(3)]
            for process in processes:
                process.start()
            for process in processes:
                process.join(60)
            self.assertEqual([process.exitcode for process in processes], [0, 0, 0])
            self.assertEqual(failures.value, 0)

    def test_a_barrier_ends_and_names_the_rank_that_did_not_come(self):
        with tempfile.TemporaryDirectory() as folder:
            torch_rank.Barrier.create(f"{folder}/b", 2)
            with self.assertRaises(torch_rank.Failure) as caught:
                torch_rank.Barrier(f"{folder}/b", 2, 0, 0.05).wait()
        self.assertEqual(caught.exception.code, 4)
        self.assertIn("for rank 1", str(caught.exception))

    def test_each_way_to_issue_gives_the_time_of_one_call_of_the_slowest_rank(self):
        for issue, us in (("host", 10.5), ("stream", 4.5), ("graph", 2.5), ("chain", 7.5)):
            given = options("--issue", issue, "-n", "3", "-w", "1", "--rounds", "2", "--sizes", "8,16")
            cases, _ = program.plan(given)
            results, devices = measured(given, cases, slower=0.5)
            self.assertEqual(program.merge(results), [([us] * 6, 0)] * 4, issue)
            # Rows inside, rounds outside.
            self.assertEqual([entry for entry in devices[0].log if isinstance(entry, torch_rank.Case)], cases * 2)

    def test_a_graph_is_timed_against_the_same_graph_without_the_calls(self):
        given = options("--issue", "graph", "-n", "2", "-w", "0", "--rounds", "1", "--sizes", "8", "--peers", "torch-one-shot")
        _, devices = measured(given, program.plan(given)[0])
        # Two counted, and one before that captures.
        self.assertEqual([entry for entry in devices[0].log if isinstance(entry, bool)], [False, True] * 3)

    def test_wrong_elements_of_every_rank_and_way_are_counted(self):
        for issue, count in (("host", 3), ("stream", 2), ("graph", 2), ("chain", 2)):
            given = options("--issue", issue, "-n", "2", "-w", "1", "--rounds", "1", "--sizes", "64", "--peers", "torch-two-shot")
            results, _ = measured(given, program.plan(given)[0], broken=True)
            self.assertEqual(program.merge(results)[0][1], count, issue)
            given.check = False
            results, _ = measured(given, program.plan(given)[0], broken=True)
            self.assertIsNone(program.merge(results)[0][1])

    def test_values_differ_between_ranks_calls_and_indices_and_their_sums_are_exact_in_bfloat16(self):
        self.assertNotEqual([torch_rank.element(index, 0, 1) for index in range(9)], [torch_rank.element(index, 1, 1) for index in range(9)])
        self.assertNotEqual([torch_rank.element(index, 0, 1) for index in range(9)], [torch_rank.element(index, 0, 2) for index in range(9)])
        sums = [sum(torch_rank.element(index, rank, call) for rank in range(8)) for index in range(200) for call in range(61)]
        self.assertLessEqual(max(map(abs, sums)), 256)
        self.assertGreater(len(set(sums)), 20)

    def test_ranks_that_disagree_and_times_that_are_no_numbers_are_refused(self):
        good = [{"samples": [[1.0, 2.0]], "wrong": 0}]
        for other in ([{"samples": [[1.0]], "wrong": 0}], [{"samples": [[1.0, float("nan")]], "wrong": 0}], [{"samples": [[]], "wrong": 0}]):
            with self.assertRaises(program.Failure) as caught:
                program.merge([other, good if len(other[0]["samples"][0]) == 1 else other])
            self.assertEqual(caught.exception.code, 2)


class Watching(unittest.TestCase):
    def watched(self, join, files=(), clock=None):
        killed = []
        processes = types.SimpleNamespace(join=join, processes=[types.SimpleNamespace(kill=lambda: killed.append(1))] * 2)
        barrier = types.SimpleNamespace(ranks=2, arrived=lambda: [5, 4])
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files:
                (pathlib.Path(folder) / name).write_text(json.dumps(content), encoding="utf-8")
            try:
                program.watch(processes, barrier, pathlib.Path(folder), 10, clock or (lambda: 0))
            except program.Failure as failure:
                return failure.code, str(failure), len(killed)
        return None

    def test_ranks_that_end_well_are_no_failure(self):
        self.assertIsNone(self.watched(lambda timeout: True))

    def test_the_cause_is_told_and_not_who_waited_for_it(self):
        def join(timeout):
            raise ValueError("process 1 terminated with exit code 3")

        files = [("failed0.json", [4, "waited"]), ("failed1.json", [3, "no memory"])]
        self.assertEqual(self.watched(join, files), (3, "rank 1: no memory", 0))
        self.assertEqual(self.watched(join, files[:1])[:2], (4, "rank 0: waited"))
        self.assertEqual(self.watched(join), (4, "a rank ended: process 1 terminated with exit code 3", 0))

    def test_ranks_that_hang_are_killed_and_the_one_behind_is_named(self):
        code, text, killed = self.watched(lambda timeout: False, clock=iter(range(0, 1000, 4)).__next__)
        self.assertEqual((code, killed), (4, 2))
        self.assertIn("behind: rank 1", text)


class Document(unittest.TestCase):
    def fake_results(self, **of_last_rank):
        return lambda given, cases: measured(given, cases, **of_last_rank)[0]

    def test_the_json_of_every_way_passes_the_schema_and_says_what_it_must(self):
        for issue in program.ISSUES:
            with tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/a.json"
                code, out, err = main_of("--issue", issue, "-n", "3", "-w", "1", "--rounds", "5", "--sizes", "8,256", "-d", "float32,bfloat16",
                                         "-J", path, results=self.fake_results(slower=0.5))
                self.assertEqual((code, err), (0, ""))
                self.assertEqual(os.listdir(folder), ["a.json"])
                document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            self.assertEqual(schema.check(copy.deepcopy(document)), [])
            self.assertEqual([line.split()[:3] for line in out.splitlines() if not line.startswith("#")],
                             [[str(row["bytes"]), row["dtype"], row["peer"]] for row in document["rows"]])
            self.assertEqual(len(document["rows"]), 8)
            for row in document["rows"]:
                self.assertEqual((row["issue"], row["rounds"], row["iters"], row["ranks"], row["wrong"]), (issue, 5, 3, 2, 0))
                self.assertEqual(row["in_place"], row["peer"] == "torch-two-shot")
                self.assertEqual((row["peer_version"], row["peer_env"]["TORCH_SYMM_MEM_DISABLE_MULTICAST"]), ("2.9.0", "1"))
                self.assertEqual(row["busbw_gbps"] is None, issue in ("graph", "chain"))
            self.assertEqual(document["machine"]["gpus"], ABOUT["gpus"])
            self.assertEqual(document["env"]["TORCH_SYMM_MEM_DISABLE_MULTICAST"], "1")
            self.assertEqual(document["command"].split()[:3], ["bench/torch_symm_mem.py", "--issue", issue])
            self.assertNotIn(folder, json.dumps(document))
            self.assertIn("slowest rank", document["method"])

    def test_wrong_data_is_exit_code_1_and_still_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, _ = main_of("-n", "1", "-w", "0", "--rounds", "1", "--sizes", "8", "-J", f"{folder}/a.json", results=self.fake_results(broken=True))
            self.assertEqual(code, 1)
            self.assertEqual([row["wrong"] for row in json.loads(pathlib.Path(f"{folder}/a.json").read_text(encoding="utf-8"))["rows"]], [1, 1])
        self.assertEqual(out.splitlines()[-1].split()[-1], "1")

    def test_a_file_that_cannot_be_written_is_told_before_measuring(self):
        def never(*_):
            raise AssertionError("measured")

        code, _, err = main_of("-J", "/none/a.json", results=never)
        self.assertEqual(code, 3)
        self.assertIn("/none", err)

    def test_statistics_are_those_of_perf(self):
        fields = perf_document.times([4.0, 1.0, 2.0, 3.0])
        self.assertEqual((fields["p10_us"], fields["p50_us"], fields["p99_us"], fields["max_us"]), (1.3, 2.5, 3.97, 4.0))
        self.assertEqual(fields["cv"], 0.5164)
        self.assertEqual(perf_document.times([2.0])["cv"], 0.0)
        self.assertEqual(perf_document.bandwidths(4000, 2.0, 4), {"algbw_gbps": 2.0, "busbw_gbps": 3.0})
        self.assertEqual(perf_document.bandwidths(4000, -0.1, 4), {"algbw_gbps": None, "busbw_gbps": None})

    def test_the_machine_is_described_without_its_name(self):
        machine = perf_document.machine(["GPU A"], "13.0", "12.8")
        self.assertEqual(list(machine), ["cpu", "cores", "kernel", "gpu_count", "gpus", "driver", "driver_cuda", "cuda_runtime"])
        self.assertTrue(machine["cpu"] and machine["cores"] >= 1 and machine["kernel"].startswith("Linux"))

    def test_environment_keeps_settings_and_hides_paths(self):
        kept = perf_document.environment({"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_HOME": "/x", "NCCL_TOPO_FILE": "/y", "HOME": "/z"}, ("CUDA_", "NCCL_"))
        self.assertEqual(kept, {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_TOPO_FILE": "(a path)"})
        self.assertEqual(perf_document.command_text("p", ["-J", "/tmp/x.json", "-n", "3"]), "p -J x.json -n 3")

    def test_the_commit_comes_from_git_or_from_the_caller(self):
        def asked(head, status):
            answers = {"rev-parse": head, "status": status}
            return lambda root, word, *more: None if answers[word] is None else types.SimpleNamespace(returncode=0, stdout=answers[word])

        def commit(given, ask):
            try:
                return perf_document.commit_of(ROOT, given, ["f"], ask)
            except perf_document.Failure as failure:
                return failure.code

        head = "\n" + "a" * 40 + "\n"
        self.assertEqual(commit(None, asked(head, " M f\n")), ("a" * 40, True))
        self.assertEqual(commit(None, asked(head, "")), ("a" * 40, False))
        self.assertEqual(commit(None, asked(head, None)), ("a" * 40, True))  # not known to be clean
        self.assertEqual(commit("a" * 7, asked(head, "")), ("a" * 40, False))
        self.assertEqual(commit("b" * 7, asked(head, "")), 64)
        nothing = asked(None, None)
        inside_another = asked("../../\n" + "a" * 40 + "\n", "")
        for ask in (nothing, inside_another):
            self.assertEqual(commit(None, ask), 3)
            self.assertEqual(commit("b" * 40, ask), ("b" * 40, False))
            self.assertEqual(commit("b" * 40 + "-dirty", ask), ("b" * 40, True))
            self.assertEqual(commit("main", ask), 64)


if __name__ == "__main__":
    unittest.main()
