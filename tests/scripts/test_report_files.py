"""Files of a report as others read them: schema, plots, CSV, SQL. Reads the tests' example report."""

import copy
import csv
import importlib.util
import io
import json
import re
import sqlite3
import subprocess
import unittest
import xml.etree.ElementTree

from support.page_support import EXAMPLE, ROOT, Pages, main

import page_charts
import plot_report
import report_file

HAS_VEGA = importlib.util.find_spec("vl_convert") is not None
SVG = "{http://www.w3.org/2000/svg}"


def example(kind, folder, form=None):
    command = [EXAMPLE, kind, str(folder)] + ([form] if form else [])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def junit_of(kind, folder):
    """The root of junit.xml, and its suites by name; counts must be those of what is in them."""
    example(kind, folder)
    root = xml.etree.ElementTree.parse(folder / "junit.xml").getroot()
    elements = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for node in [root, *root]:
        for attribute, element in elements.items():
            count = len(list(node.iter(element)))
            assert int(node.get(attribute)) == count, (node.get("name"), attribute, node.get(attribute), count)
    return root, {suite.get("name"): suite for suite in root}


class JUnit(Pages):
    def outcome(self, suite, name):
        """(element, type, message) of the only test case of that name; None where it passed."""
        found = [case for case in suite if case.get("name") == name]
        self.assertEqual(len(found), 1, name)
        self.assertEqual(found[0].get("classname"), suite.get("name"))
        return [(child.tag, child.get("type"), child.get("message")) for child in found[0]] or None

    def test_a_passing_report(self):
        root, suites = junit_of("gpu", self.folder)
        # The ratchet has no entry for an example, in any of the six suites.
        self.assertEqual((root.tag, root.get("failures"), root.get("errors"), root.get("skipped")),
                         ("testsuites", "0", "0", "6"))
        self.assertEqual(len(suites), 6)
        suite = suites["synthetic d=512 n=16 / megakernel (plain)"]
        for name in ("prompt counting (strict)", "prompt capital (near-tie)", "check r_rms", "check strict",
                     "check receipts", "verdict"):
            self.assertIsNone(self.outcome(suite, name))
        self.assertEqual(self.outcome(suite, "check ratchet"),
                         [("skipped", None, "reports/ratchet.json has no entry")])
        self.assertGreater(float(suite.get("time")), 0)

    def test_what_failed(self):
        _, suites = junit_of("failed", self.folder)
        wrong = suites["synthetic d=0 n=16 / megakernel (plain)"]
        self.assertEqual(
            self.outcome(wrong, "prompt counting (strict)"),
            [("failure", "tokens", "1 of 3 tokens differ; first at position 5: found 7, wanted 221 (WRONG, margin 0.5)")])
        self.assertIsNone(self.outcome(wrong, "prompt capital (near-tie)"))
        self.assertEqual(self.outcome(wrong, "check r_rms"), [("failure", "r_rms", "found 2.5, limit 1.5")])
        self.assertEqual(self.outcome(wrong, "check receipts"), [("failure", "receipts", "3 of 160 timed ids differ")])
        self.assertEqual(self.outcome(wrong, "verdict")[0][:2], ("failure", "FAIL_TOKEN"))
        # Where it begins, "KV row 4 of layer 7 first", is left out beside a bug that is named alone.
        self.assertEqual(wrong[-1][0].text, "the logits are those of: GELU for SiLU")
        hung = suites["synthetic d=512 n=16 / megakernel (plain)"]
        self.assertEqual(self.outcome(hung, "verdict"), [("error", "HANG", "HANG: no progress for 10 s")])
        self.assertIsNone(hung.get("time"))
        skipped = suites["synthetic d=512 n=16 / eager"]
        self.assertEqual(self.outcome(skipped, "verdict"), [("skipped", None, "SKIPPED: not here")])
        case = suites["synthetic d=4096 n=16"]
        self.assertEqual(self.outcome(case, "verdict"), [
            ("error", "BAD_INPUT", 'BAD_INPUT: a<b> & "c" \\x07 \\xff \\xef\\xbf\\xbf \u00e9')])


class Files(Pages):
    def setUp(self):
        super().setUp()
        self.report = self.example("gpu")


@unittest.skipUnless(importlib.util.find_spec("jsonschema"), "no jsonschema")
class Schema(Files):
    def setUp(self):
        super().setUp()
        import jsonschema
        schema = json.loads((ROOT / "reports" / "report.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        self.validator = jsonschema.Draft202012Validator(schema)

    def test_reports_of_every_kind_keep_to_it(self):
        for kind in ("gpu", "cpu", "failed", "diagnosed", "empty"):
            self.assertEqual([e.message for e in self.validator.iter_errors(self.example(kind))], [], kind)

    def fields(self, value, path=()):
        """Paths of all fields; of a list, those of its first element. meta, env, calibration and seal are free."""
        if isinstance(value, list) and value:
            yield from self.fields(value[0], path + (0,))
        if isinstance(value, dict) and path[:1] not in (("meta",), ("env",), ("calibration",), ("seal",)):
            for name, inner in value.items():
                yield path + (name,)
                yield from self.fields(inner, path + (name,))

    def test_it_is_not_lax(self):
        """Every field is required and has a type, no other is allowed, and a null number tells why."""
        self.report["cases"] = self.report["cases"][:1]
        for engine in self.report["cases"][0]["engines"]:
            engine["samples"] = engine["samples"][:1]
        tried = 0
        for path in list(self.fields(self.report)):
            changed = copy.deepcopy(self.report)
            at = changed
            for key in path[:-1]:
                at = at[key]
            name = path[-1]
            tried += 1
            if path not in (("meta",), ("env",), ("calibration",)):
                value, at[name] = at[name], [{}]
                self.assertFalse(self.validator.is_valid(changed), (path, "of another type"))
                at[name] = value
            if name.endswith("_reason") and at.get(name[:-len("_reason")]) is not None:
                continue  # the number is there, so no reason is wanted
            del at[name]
            self.assertFalse(self.validator.is_valid(changed), (path, "left out"))
        self.assertGreater(tried, 100)
        self.report["cases"][0]["surprise"] = 1
        self.assertFalse(self.validator.is_valid(self.report))
        del self.report["cases"][0]["surprise"]
        self.report["schema"]["version"] = "2.0.0"
        self.assertFalse(self.validator.is_valid(self.report))


class Flat(Files):
    def test_csv_and_sql_hold_the_same_rows(self):
        rows = list(csv.DictReader(io.StringIO(example("gpu", self.folder / "a", "csv"))))
        self.assertEqual([(r["engine"], r["depth"]) for r in rows],
                         [(e, d) for d in ("0", "512", "4096") for e in ("eager", "megakernel")])
        database = sqlite3.connect(":memory:")
        database.executescript(example("gpu", self.folder / "a", "sql"))
        database.row_factory = sqlite3.Row
        found = database.execute("SELECT * FROM mkbench").fetchall()
        self.assertEqual(len(found), len(rows))
        for a, b in zip(found, rows):
            self.assertEqual(a.keys(), list(b))
            self.assertAlmostEqual(a["tok_per_s"], float(b["tok_per_s"]))
            self.assertEqual(a["speedup"] is None, b["speedup"] == "")


class Picture:
    """An SVG as it is seen: its size, texts as (text, class, x, y, letters' size), and the strokes of its intervals."""

    def __init__(self, path):
        root = xml.etree.ElementTree.parse(path).getroot()
        self.width, self.height = float(root.get("width")), float(root.get("height"))
        self.texts, self.strokes = [], []
        self.walk(root, "", 0, 0)

    def walk(self, node, kind, x, y):
        kind = node.get("class", kind)
        place = re.search(r"translate\(([-\d.]+),([-\d.]+)\)", node.get("transform", ""))
        x, y = x + float(place[1]) if place else x, y + float(place[2]) if place else y
        size = float((node.get("font-size") or "0px").removesuffix("px"))
        for text in ([node.text] if node.text else []) + [part.text for part in node.iter(SVG + "tspan")]:
            if node.tag == SVG + "text":
                shift = {"middle": 0.5, "end": 1}.get(node.get("text-anchor"), 0)
                wide = 0 if "rotate" in node.get("transform", "") else LETTER * size * len(text)
                self.texts.append((text, kind, x - shift * wide, x + (1 - shift) * wide, y))
        if node.tag == SVG + "line" and "role-mark" in kind:
            self.strokes.append((y, y + float(node.get("y2", 0))))
        for inner in node:
            self.walk(inner, kind, x, y)

    def of(self, kind):
        return [text for text, found, *_ in self.texts if kind in found]


LETTER = 0.4  # of its size is what a letter at least takes of a line, on average


@unittest.skipUnless(HAS_VEGA, "no vl-convert")
class Plots(Files):
    def plot(self, *reports, out="plots", **more):
        return self.make(*reports, out=out, program="plot_report", **more)

    def names(self, *reports):
        done = self.plot(*reports)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = sorted((self.folder / "plots").iterdir())
        for path in files:
            head = path.read_bytes()[:200]
            self.assertTrue(head.startswith(b"\x89PNG") if path.suffix == ".png" else b"<?xml" in head, path)
            self.assertGreater(path.stat().st_size, 10000)
        return [path.name for path in files]

    def picture(self, report):
        self.names(report)
        return Picture(self.folder / "plots" / "synthetic-Example-GPU-n16.svg")

    def test_lines_bars_and_several_models(self):
        self.assertEqual(self.names(self.report, self.example("cpu")),
                         ["synthetic-Example-GPU-n16.png", "synthetic-Example-GPU-n16.svg",
                          "tiny-n16.png", "tiny-n16.svg"])
        texts = Picture(self.folder / "plots" / "tiny-n16.svg").of("")
        self.assertTrue([text for text in texts if text.startswith("a CPU: not a GPU result")])
        before = {path: path.read_bytes() for path in (self.folder / "plots").iterdir()}
        self.names(self.report)
        self.assertEqual({path: path.read_bytes() for path in before}, before)  # equal reports give equal bytes

    def test_a_prefill_has_a_plot_of_its_own(self):
        self.assertIn("synthetic-Example-GPU-prefill.svg", self.names(self.example("diagnosed")))
        texts = Picture(self.folder / "plots" / "synthetic-Example-GPU-prefill.svg").of("")
        self.assertIn("synthetic: prefill, batch 1, bf16", texts)
        self.assertIn("ms per prompt id", " ".join(texts))

    def test_what_lines_and_bars_say(self):
        """Title, axes, legend with the ceiling, figures of the points with their speed-up."""
        case = self.report["cases"][0]
        speedup = f"{case['comparisons'][0]['speedup']:.1f}x"
        lines = self.picture(self.report)
        self.assertEqual(lines.of("legend-label"), ["eager", "megakernel (plain)", "ceiling"])
        self.assertEqual(sorted(lines.of("axis-title")), sorted(
            2 * ["KV rows before the first timed token"] + ["tokens per second, log scale", "ms per token, log scale"]))
        for kind in ("title-text", "axis-label"):
            self.assertLessEqual({"title-text": {"synthetic: decode, batch 1, bf16", "Tokens per second against depth"},
                                  "axis-label": {"0", "512", "4,096"}}[kind], set(lines.of(kind)))
        rate = page_charts.digits(case["engines"][1]["tok_per_s"])
        shown = lines.of("role-mark")
        self.assertIn(rate, shown)
        self.assertIn(speedup, shown)
        notes = " ".join(lines.of("title-subtitle"))
        for part in ("Example GPU, 16 tokens a block", "10 paired blocks in 5 processes", "95 % confidence interval",
                     "x: speed-up over the fastest baseline", "timed in the same blocks (1,422 to 1,570 GB/s)"):
            self.assertIn(part, notes)
        bars = self.picture({**self.report, "cases": [case]})
        self.assertEqual(bars.of("legend-label"), [])
        named = [text for text in bars.of("role-mark") if text.startswith("megakernel (plain): ")]
        self.assertEqual(len(named), 2)
        self.assertRegex(named[0], rf"^megakernel \(plain\): {rate} \[.*\] +{speedup}$")
        self.assertEqual(len([text for text in bars.of("role-mark") if text.startswith("ceiling: ")]), 2)

    def test_withheld_times_are_left_out(self):
        changed = copy.deepcopy(self.report)
        changed["cases"][1]["engines"][1].update(verdict="FAIL_TOKEN", ms_per_tok=None, tok_per_s=None)
        self.assertIn("Times withheld: megakernel (plain) at 512: FAIL_TOKEN.", self.picture(changed).of("title-subtitle"))
        for case in changed["cases"]:
            for engine in case["engines"]:
                engine.update(verdict="FAIL_TOKEN", ms_per_tok=None, tok_per_s=None)
        done = self.plot(changed, out="none")
        self.assertEqual(done.returncode, 3)
        self.assertIn("nothing to plot", done.stderr)
        self.assertFalse((self.folder / "none").exists())
        # A wrong engine that shows its states is drawn all the same.
        for case in changed["cases"][:2]:
            case["engines"][1]["parity"]["failed_step"] = {"position": 6, "error_by_layer": [
                {"at": at, "error": 10.0**(at - 3), "baseline_error": 1e-4, "limit": 4e-4} for at in range(4)]}
        done = self.plot(changed, out="wrong")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        files = sorted(file.name for file in (self.folder / "wrong").iterdir())
        self.assertEqual(files, [f"synthetic-megakernel-plain-errors.{kind}" for kind in ("png", "svg")])
        drawn = (self.folder / "wrong" / files[1]).read_text()
        for text in ("synthetic: errors of megakernel (plain)", "Errors of megakernel (plain) by layer", "1e-3"):
            self.assertIn(f">{text}<", drawn)

    def test_untimed_baselines_are_not_withheld(self):
        changed = copy.deepcopy(self.report)
        for case in changed["cases"]:
            case["engines"][0].update(timed=False, ms_per_tok=None, tok_per_s=None)
            case["comparisons"][0]["speedup"] = None
        self.names(changed)
        drawn, = plot_report.collect([changed])
        self.assertEqual((drawn.engines, drawn.withheld), (["megakernel (plain)"], []))

    def test_labels_and_intervals_stay_inside(self):
        """Two blocks have wide intervals; eight engines from files have long names and a legend of several rows."""
        two = copy.deepcopy(self.report)
        for case in two["cases"]:
            for engine in case["engines"]:
                mean = engine["ms_per_tok"]["mean"]
                engine["ms_per_tok"].update(ci={"low": 0.1 * mean, "high": 1.9 * mean}, count=2)
                engine.update(tok_per_s_ci_low=1000 / (1.9 * mean), tok_per_s_ci_high=1000 / (0.1 * mean))
        many = copy.deepcopy(two)
        for case in many["cases"]:
            case["engines"] += [{**case["engines"][1], "name": f"/some/where/a_long_decoder_{i}.so",
                                 "resolved_name": f"its name@a_long_decoder_{i}.so"} for i in range(6)]
        for report in (two, many):
            for cases in (report["cases"], report["cases"][:1]):
                picture = self.picture({**report, "cases": cases})
                engines = len(cases[0]["engines"])
                self.assertEqual(len(picture.of("legend-label")), engines + 1 if len(cases) > 1 else 0)
                self.assertGreaterEqual(len(picture.strokes), 2 * engines * len(cases))
                for text, _, left, right, y in picture.texts:
                    self.assertTrue(0 <= left and right <= picture.width and 0 < y <= picture.height, (text, left, right, y))
                for ends in picture.strokes:
                    self.assertTrue(0 < min(ends) and max(ends) < picture.height, ends)

    def test_malformed_values_are_refused_in_one_line(self):
        for field, value in (("tok_per_s", None), ("tok_per_s", "fast"), ("tok_per_s", float("nan"))):
            changed = copy.deepcopy(self.report)
            changed["cases"][0]["engines"][1][field] = value
            done = self.plot(changed)
            self.assertEqual(done.returncode, 2, (field, value, done.stderr))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("page-0.json: not a complete report", done.stderr)

    def test_what_is_left_out_is_said_in_one_line(self):
        (self.folder / "vl_convert.py").write_text("raise ImportError('left out for a test')\n")
        done = self.plot(self.report, env={"PYTHONPATH": str(self.folder)})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "plot_report: plots are left out: no vl_convert: left out for a test; to draw "
                                      f"them, run `mkbench report -o svg {self.folder / 'page-0.json'}` with the Python that "
                                      "scripts/setup.sh makes\n")


class Reader(Files):
    def test_what_is_no_report_is_refused_by_name(self):
        for text, wanted in (("", "not JSON"), ("[" * 100000, "not JSON"), ("[]", "schema.id: found None, wanted mkbench.report"),
                             ('{"schema": {"id": "x"}}', "schema.id: found 'x', wanted mkbench.report"),
                             ('{"schema": {"id": "mkbench.report"}}', "schema.version: found None, wanted 1.x"),
                             ('{"schema": {"id": "mkbench.report", "version": "9.0.0"}}', "schema.version: found '9.0.0', wanted "
                              "1.x: read it with the mkbench that wrote it")):
            with self.assertRaisesRegex(report_file.BadReport, f"^bad.json: {wanted}"):
                report_file.parse("bad.json", text)
        with self.assertRaisesRegex(report_file.BadReport, "absent.json: No such file"):
            report_file.load(self.folder / "absent.json")

    def test_a_later_minor_version_with_more_fields_is_read(self):
        self.report["schema"]["version"] = "1.99.0"
        self.report["cases"][0]["engines"][0]["surprise"] = 1
        figure, = plot_report.collect([report_file.parse("later", json.dumps(self.report))])
        self.assertEqual(figure.engines, ["eager", "megakernel (plain)"])


if __name__ == "__main__":
    main("")
