#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""tools/plot on made-up result files: what it draws and writes, what --check finds, what it refuses and how it says so."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]
import plot_series  # noqa: E402
import plot_svg  # noqa: E402
import results_schema_test as schema  # noqa: E402

loader = importlib.machinery.SourceFileLoader("plot", str(ROOT / "tools/plot"))
plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot", loader))
loader.exec_module(plot)

SIZES = [8, 1024, 1 << 20]


def row(size, us, **values):
    return dict(schema.OURS, bytes=size, count=size // 4, device="cuda", p10_us=us * 0.9, p50_us=us, p99_us=us * 2,
                max_us=us * 3, **values) if us > 0 else dict(schema.OURS, bytes=size, p50_us=us, **values)


def nop(us):
    return dict(schema.OURS, bytes=0, count=0, dtype="none", op="none", algo="nop", proto="none", channels=None, device="cuda",
                p10_us=us, p50_us=us, p99_us=us, max_us=us, algbw_gbps=None, busbw_gbps=None, wrong=None)


def peer(name, size, us, **values):
    common = {"peer": name, "proto": "-", "algo": "-", "channels": None, "rounds": 5}
    extra = {"ratio": 0.25, "ratio_min": 0.2, "ratio_max": 0.3, "peer_version": "2.28.3", "nvls": False}
    return row(size, us, **{**common, **extra, **values})


def document(rows, **values):
    return {**schema.SAMPLE, "machine": {"cpu": "x", "gpus": ["GPU A", "GPU A"], "driver": "580.1", "cuda_runtime": "13.0"},
            "rows": rows, **values}


def named(*documents):
    return [(f"{index}.json", one) for index, one in enumerate(documents)]


def run(*arguments):
    """@return (exit code, standard output, standard error) of tools/plot"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = plot.main([str(one) for one in arguments])
    return code, out.getvalue(), err.getvalue()


class Folder(unittest.TestCase):
    """A small repository: README.md with marks, two result files, pictures drawn."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.put("bench/results/a.json", document([nop(3.0), *(row(size, 5 + size / 1e4) for size in SIZES)]))
        self.put("bench/results/b.json", document([*(row(size, 9 + size / 2e4, proto="Simple") for size in SIZES)]))
        self.readme = self.root / "README.md"
        self.readme.write_text("# x\n<!-- picture: bench/pictures/p bench/results/a.json bench/results/b.json -->\n<!-- end picture -->\n"
                               "between\n<!-- table: bench/results/a.json bench/results/b.json -->\nold\n<!-- end table -->\nend\n",
                               encoding="utf-8")
        self.assertEqual(run("--root", self.root), (0, "", ""))
        self.assertEqual(self.check(), (0, "", ""))

    def put(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    def check(self, *more):
        return run("--check", "--root", self.root, *more)


class Check(Folder):
    def test_writing_twice_changes_nothing(self):
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        self.assertEqual(len(before), 5)
        self.assertEqual(run("--root", self.root)[0], 0)
        self.assertEqual(before, {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()})

    def test_only_what_stands_between_marks_is_rewritten(self):
        lines = self.readme.read_text(encoding="utf-8").splitlines()
        for line in ("# x", "between", "end"):
            self.assertEqual(lines.count(line), 1, line)
        self.assertNotIn("old", lines)
        self.assertEqual(sum(line.startswith("<!-- ") for line in lines), 4)

    def test_a_changed_figure_in_the_readme_is_found(self):
        text = self.readme.read_text(encoding="utf-8")
        self.assertIn("| 8 | 5.0 | 9.0 |", text)
        self.readme.write_text(text.replace("| 8 | 5.0 |", "| 8 | 4.0 |"), encoding="utf-8")
        code, out, _ = self.check()
        self.assertEqual(code, 1)
        self.assertIn("README.md's marked parts differ", out)

    def test_a_changed_result_is_found_in_table_and_pictures(self):
        self.put("bench/results/b.json", document([row(size, 8 + size / 2e4, proto="Simple") for size in SIZES]))
        code, out, _ = self.check()
        self.assertEqual(code, 1)
        for name in ("README.md", "p-light.svg differs", "p-dark.svg differs"):
            self.assertIn(name, out)

    def test_a_stale_a_missing_and_a_forgotten_picture_are_found(self):
        light = self.root / "bench/pictures/p-light.svg"
        light.write_text(light.read_text(encoding="utf-8").replace("stroke-width", "stroke-Width", 1), encoding="utf-8")
        (self.root / "bench/pictures/p-dark.svg").rename(self.root / "bench/pictures/q-dark.svg")
        code, out, _ = self.check()
        self.assertEqual(code, 1)
        self.assertNotIn("README.md's", out)
        for text in ("bench/pictures/p-light.svg differs", "bench/pictures/p-dark.svg is missing", "bench/pictures/q-dark.svg is drawn from nothing"):
            self.assertIn(text, out)

    def test_a_missing_result_file_is_named(self):
        (self.root / "bench/results/b.json").unlink()
        code, _, err = self.check()
        self.assertEqual(code, 1)
        self.assertIn("bench/results/b.json: cannot be read: No such file", err)

    def test_results_may_lie_in_another_folder(self):
        (self.root / "bench/results").rename(self.root / "elsewhere")
        self.assertEqual(self.check()[0], 1)
        self.assertEqual(self.check("--results", self.root / "elsewhere")[0], 0)


class Refused(Folder):
    def refused(self, content, *texts):
        path = self.root / "bench/results/b.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        for arguments in (("--root", self.root), ("--check", "--root", self.root)):
            code, _, err = run(*arguments)
            self.assertEqual(code, 1, err)
            for text in ("b.json", *texts):
                self.assertIn(text, err)

    def test_files_without_usable_rows_are_named(self):
        self.refused(document([]), "no rows")
        self.refused(document([row(8, 5.0, dtype="bfloat16")]), "no rows with dtype=float32, op=sum")
        self.refused(document([nop(3.0)]), "no rows with")
        self.refused("{", "cannot be read")
        self.refused({"a": 1}, "not a result file")
        self.refused(document([dict(row(8, 5.0), p50_us="5")]), "row 0: p50_us is no number")

    def test_not_a_number_is_refused(self):
        for text in ("NaN", "Infinity", "-Infinity"):
            self.refused(json.dumps(document([row(8, 5.0)])).replace('"p50_us": 5.0', f'"p50_us": {text}'), text)

    def test_zero_has_no_place_on_a_logarithmic_axis(self):
        self.refused(document([row(8, 0.0, proto="Simple")]), "logarithmic")
        self.refused(document([row(0, 5.0, proto="Simple")]), "logarithmic")

    def test_the_same_series_twice_and_two_machines_are_refused(self):
        self.refused(document([row(8, 7.0)]), "both have 8 bytes of ringbell LL", "a.json")
        self.refused(document([row(8, 7.0, proto="Simple")], machine={"cpu": "x", "gpus": ["GPU B"]}), "different machines", "GPU B")

    def test_a_failure_leaves_all_files_as_they_were(self):
        before = self.readme.read_bytes()
        self.refused(document([]))
        self.assertEqual(self.readme.read_bytes(), before)

    def test_bad_command_lines(self):
        for arguments in (["--what"], ["--results"], ["--only", "x", "f"], ["--svg", "x"], ["--check", "f.json"]):
            self.assertEqual(run(*arguments)[0], 64, arguments)
        for word in ("size=8", "place=here", "dtype="):
            code, _, err = run("f.json", "--only", word)
            self.assertEqual(code, 1)
            self.assertIn(word, err)


class Tables(unittest.TestCase):
    def rows_of(self, text):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        self.assertEqual(len({len(line) for line in cells}), 1, text)
        return [dict(zip(cells[0], line)) for line in cells[2:]]

    def test_missing_combinations_stay_blank(self):
        text = plot.table(named(document([row(8, 5.0), row(64, 6.0)]), document([row(64, 9.0, proto="Simple"), row(512, 4.0, proto="Simple")])), {})
        self.assertEqual([(line["bytes"], line["LL"], line["Simple"]) for line in self.rows_of(text)],
                         [("8", "5.0", ""), ("64", "6.0", "9.0"), ("512", "", "4.0")])

    def test_sizes_are_right(self):
        for size, text in ((1, "1"), (1000, "1000"), (1024, "1 K"), (1536, "1536"), (4 << 20, "4 M"), (1 << 30, "1 G")):
            self.assertEqual(plot_series.size_text(size), text)

    def test_a_caption_says_machine_ranks_device_place_path_floor_and_versions(self):
        text = plot.table(named(document([nop(9.9), nop(10.1), row(8, 5.0)]), document([row(8, 9.0, proto="Simple")], commit="f" * 40)), {})
        for words in ("2 ranks, cuda, 2 x GPU A", "float32 sum", "ring, 1 channel", "out of place", "host: call and wait",
                      "an empty call takes 9.9 to 10.1", "ringbell 0.1.0 (0123abc, fffffff)", "CUDA 13.0, driver 580.1"):
            self.assertIn(words, text)

    def test_ratios_stand_beside_each_peer_with_version_and_nvls(self):
        rows = [row(8, 4.0), row(64, 5.0), peer("nccl", 8, 16.0), peer("nccl", 64, 20.0), peer("mpi", 64, 9.0, peer_version="Open MPI 4", nvls=None)]
        rows[3].pop("ratio")
        text = plot.ratios(named(document(rows)), {})
        self.assertEqual([line[:-1] for line in text.splitlines()[2:]], [
            "| bytes | ringbell LL | NCCL | ratio | MPI | ratio ", "| ---: | ---: | ---: | ---: | ---: | ---: ",
            "| 8 | 4.0 | 16.0 | 0.25 (0.20..0.30) |  |  ", "| 64 | 5.0 | 20.0 |  | 9.0 | 0.25 (0.20..0.30) "])
        self.assertIn("NCCL 2.28.3 (NVLS off), Open MPI 4,", text)

    def test_nvls_is_told_per_row_where_it_differs(self):
        text = plot.table(named(document([row(8, 4.0), peer("nccl", 8, 16.0), peer("nccl", 8, 15.0, nvls=True)])), {})
        self.assertIn("| NCCL NVLS off | NCCL NVLS on |", text)
        self.assertIn("NCCL 2.28.3 (NVLS off, NVLS on)", text)
        self.assertIn("NVLS unknown", plot.table(named(document([peer("nccl", 8, 16.0, nvls=None)])), {}))

    def test_issue_ways_are_columns_of_their_own(self):
        rows = [row(8, 4.0 + index, issue=issue) for index, issue in enumerate(schema.ISSUES)] + [peer("nccl", 8, 16.0, issue="graph")]
        line, = self.rows_of(plot.table(named(document(rows)), {}))
        self.assertEqual(sum(name.startswith("ringbell LL (") for name in line), len(schema.ISSUES))
        self.assertEqual(line["NCCL (graph)"], "16.0")

    def test_in_place_is_taken_where_there_is_nothing_else_and_said(self):
        rows = [row(8, 4.0), row(8, 5.0, in_place=True), peer("torch-two-shot", 8, 7.0, in_place=True)]
        line, = self.rows_of(plot.table(named(document(rows)), {}))
        self.assertEqual([line["ringbell LL"], line["PyTorch two-shot (in place)"]], ["4.0", "7.0"])
        line, = self.rows_of(plot.table(named(document(rows)), {"place": ["in"]}))
        self.assertEqual([line["ringbell LL"], line["PyTorch two-shot"]], ["5.0", "7.0"])

    def test_a_protocol_chosen_by_size_is_one_series_that_says_the_choice(self):
        rows = [row(8, 4.0), row(1 << 20, 90.0, proto="Simple", channels=8)]
        lines = self.rows_of(plot.table(named(document(rows)), {}))
        self.assertEqual([line["auto"] for line in lines], ["4.0 (LL)", "90.0 (Simple)"])

    def test_chains_by_their_ways_are_columns_of_their_own_and_can_be_asked_for(self):
        rows = [row(8, 4.0 + index, issue="chain", chain=way) for index, way in enumerate(sorted(schema.CHAINS))]
        line, = self.rows_of(plot.table(named(document(rows)), {}))
        self.assertEqual(sum("chain" in name for name in line), len(schema.CHAINS))
        line, = self.rows_of(plot.table(named(document(rows)), {"issue": ["chain-graph"]}))
        self.assertEqual(list(line.values())[1:2], ["5.0"])

    def test_every_known_peer_and_issue_has_words(self):
        self.assertEqual(set(plot_series.PEERS), schema.PEERS)
        self.assertEqual(set(plot_series.ISSUES), schema.ISSUES | {f"chain-{way}" for way in schema.CHAINS})

    def test_files_given_by_name_are_shown_and_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            path.write_text(json.dumps(document([row(8, 4.0), peer("nccl", 8, 16.0)])), encoding="utf-8")
            code, out, err = run(path, "--svg", f"{folder}/p")
            self.assertEqual((code, err), (0, ""))
            self.assertEqual([len(self.rows_of(part)) for part in out.split("\n\n2 ranks")], [1, 1])
            for theme in plot_svg.THEMES:
                ElementTree.parse(f"{folder}/p-{theme}.svg")


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055)**2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Pictures(unittest.TestCase):
    SVG = "{http://www.w3.org/2000/svg}"

    def everything(self):
        """Every peer at 24 sizes: the most that one picture ever has to bear."""
        return named(document([nop(3.0)] + [row(8 << power, 5 + index + (8 << power) / 1e4) if name == "ringbell" else
                                            peer(name, 8 << power, 5 + index + (8 << power) / 1e4)
                                            for index, name in enumerate(plot_series.PEERS) for power in range(24)]))

    def test_a_picture_is_small_sound_xml_without_scripts_and_says_what_it_is(self):
        for text in plot.pictures(self.everything(), {})[0].values():
            self.assertLess(len(text.encode()), 40 * 1024)
            tree = ElementTree.fromstring(text)
            self.assertEqual(tree.get("role"), "img")
            for name in ("title", "desc"):
                found = tree.find(self.SVG + name)
                self.assertTrue(found.text.strip())
                self.assertIn(found.get("id"), tree.get("aria-labelledby").split())
            self.assertLessEqual({one.tag for one in tree.iter()},
                                 {self.SVG + name for name in ("svg", "title", "desc", "rect", "g", "path", "text", "marker", "polyline")})
            self.assertEqual(len(tree.findall(self.SVG + "polyline")), len(plot_series.PEERS))
            self.assertNotRegex(text, r"(?i)\bnan\b|\binf\b|href|<style|font-face|http(?!://www\.w3\.org/2000/svg)")
            self.assertIn('font-family="sans-serif"', text)

    def test_points_lie_inside_and_where_their_values_are(self):
        drawn = ElementTree.fromstring(plot_svg.picture([("a", [(8, 1.0), (64, 10.0), (512, 100.0)])], "t", "s", "n"))
        points = [[float(part) for part in point.split(",")] for point in drawn.find(self.SVG + "polyline").get("points").split()]
        self.assertEqual(points[0][0], plot_svg.LEFT)
        self.assertEqual(points[2][0], plot_svg.WIDTH - plot_svg.RIGHT)
        self.assertAlmostEqual(points[1][0], (points[0][0] + points[2][0]) / 2, delta=0.1)
        self.assertAlmostEqual(points[0][1] - points[2][1], plot_svg.PLOT_HEIGHT, delta=0.1)
        self.assertAlmostEqual(points[1][1], (points[0][1] + points[2][1]) / 2, delta=0.1)

    def test_no_two_series_share_colour_dash_and_marker(self):
        tree = ElementTree.fromstring(plot.pictures(self.everything(), {})[0]["light"])
        lines = [(one.get("stroke"), one.get("stroke-dasharray")) for one in tree.findall(self.SVG + "polyline")]
        self.assertEqual(len(set(lines)), len(lines))
        few = len(plot_svg.DASHES)
        self.assertEqual(len({dash for _, dash in lines[:few]}), few)
        self.assertEqual(len({colour for colour, _ in lines[:few]}), few)
        self.assertGreaterEqual(len(set(plot_svg.MARKERS)), few)

    def test_colours_stand_out_from_their_background(self):
        for theme, colours in plot_svg.THEMES.items():
            for colour in colours["lines"]:
                self.assertGreaterEqual(contrast(colour, colours["back"]), 4.5, f"{theme} {colour}")
            for name in ("text", "soft"):
                self.assertGreaterEqual(contrast(colours[name], colours["back"]), 4.5, f"{theme} {name}")

    def test_one_point_gets_a_marker_and_axes(self):
        text = plot_svg.picture([("a", [(8, 5.0)])], "t", "s", "n", (5.0, 5.0))
        ElementTree.fromstring(text)
        self.assertNotIn("nan", text.lower())

    def test_labels_are_escaped(self):
        tree = ElementTree.fromstring(plot_svg.picture([("a<b & c", [(8, 5.0), (16, 6.0)])], "<t>", "&", "<n>"))
        self.assertIn("a<b & c", [one.text for one in tree.iter(self.SVG + "text")])

    def test_ticks_are_powers_of_two_and_one_two_five(self):
        everything, labelled = plot_svg.byte_ticks(8, 64 << 20)
        self.assertEqual((everything[0], everything[-1], labelled), (3, 26, [3, 6, 9, 12, 15, 18, 21, 24, 26]))
        for low, high in ((3.7, 17000), (0.4, 0.45), (1.0, 1.0), (5.0, 10.0), (0.001, 1e7)):
            values, labelled = plot_svg.time_ticks(low, high)
            self.assertTrue(values[0] <= low * 1.00001 and values[-1] >= high * 0.99999 and len(values) >= 2, (low, high, values))
            self.assertLessEqual(len(labelled), 13)
            for value in values:
                digit = value / 10**math.floor(math.log10(value) + 1e-9)
                self.assertAlmostEqual(min(abs(digit - one) for one in (1, 2, 5)), 0, places=6)
        self.assertEqual([plot_svg.time_label(value) for value in (0.05, 0.5, 1, 20000)], ["0.05", "0.5", "1", "20000"])


if __name__ == "__main__":
    unittest.main()
