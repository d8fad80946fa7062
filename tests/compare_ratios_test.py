#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""bench/compare_ratios.py: pairs of equal rows, differences, and files that cannot be compared."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import compare_ratios


def row(ratio, **fields):
    return {"bytes": 8, "dtype": "float32", "op": "sum", "issue": "host", "in_place": False, "peer": "nccl", "ratio": ratio, **fields}


class Compare(unittest.TestCase):
    def run_on(self, first, second, *options):
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for index, rows in enumerate((first, second)):
                names.append(f"{folder}/{index}.json")
                pathlib.Path(names[-1]).write_text(json.dumps({"rows": rows}), encoding="utf-8")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = compare_ratios.main([*names, *options])
            return code, out.getvalue()

    def test_equal_rows_within_the_limit_agree(self):
        code, out = self.run_on([row(0.50), row(0.30, bytes=1024)], [row(0.52), row(0.30, bytes=1024)])
        self.assertEqual((code, out), (0, "2 pairs, largest difference 0.040\n"))

    def test_a_pair_beyond_the_limit_is_named(self):
        code, out = self.run_on([row(0.50)], [row(0.60)])
        self.assertEqual(code, 1)
        self.assertIn("8 bytes float32 sum host nccl: 0.500 and 0.600", out)
        self.assertEqual(self.run_on([row(0.50)], [row(0.60)], "--within", "0.3")[0], 0)

    def test_rows_of_other_ways_peers_and_sizes_are_no_pairs(self):
        first = [row(0.5), row(0.5, issue="chain", chain="graph"), row(9, bytes=1 << 22), row(None, peer="mpi")]
        second = [row(0.5, peer="launch"), row(0.9, issue="chain", chain="stream"), row(1, bytes=1 << 22), row(None, peer="mpi")]
        self.assertEqual(self.run_on(first, second), (3, "0 pairs, largest difference 0.000\n"))

    def test_a_file_that_is_none_is_named(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(compare_ratios.main(["/nowhere.json", "/nowhere.json"]), 3)
        self.assertIn("/nowhere.json", err.getvalue())


if __name__ == "__main__":
    unittest.main()
