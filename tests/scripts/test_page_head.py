"""The head of a report's page, and the colours of its engines."""

import importlib.util
import json
import subprocess
import sys
import unittest

from support.page_support import ROOT, Pages, main

import page_charts
import page_tables
import plot_report
import report_file

MISSING = [name for name in ("jinja2", "vl_convert") if not importlib.util.find_spec(name)]


class Palette(unittest.TestCase):
    def looks(self, *labels):
        palette = page_charts.Palette()
        for label in labels:
            palette.add(label, label)
        return {row["engine"]: (row["slot"], row["shape"]) for row in palette.legend()}

    def test_an_engine_has_one_look_in_every_picture_and_no_two_are_alike(self):
        strangers = [f"engine-{i}.so" for i in range(50)]
        alone = {label: self.looks(label)[label] for label in ("ring", "plain", "eager", "graph", "triton", strangers[0])}
        many = self.looks("eager", "graph", "plain", "ring", *strangers)
        for label in ("ring", "plain", "eager", "graph"):
            self.assertEqual(many[label], alone[label])
        self.assertEqual(len(set(many.values())), len(many))
        self.assertEqual(len({colour for colour, _ in list(many.values())[:8]}), 8)
        # An engine without a colour of its own does not take one that is another's.
        self.assertEqual(self.looks("triton", "ring", "eager")["triton"], alone["triton"])
        self.assertNotIn(alone["triton"], [alone[label] for label in ("ring", "plain", "eager", "graph")])
        self.assertEqual([page_charts.Palette.shape(slot) for slot in (0, 8, 63)],
                         [page_charts.SHAPES[0], page_charts.SHAPES[1], page_charts.SHAPES[(63 + 7) % 8]])


class Head(Pages):
    """What stands above all tables."""

    def sentence(self, report):
        return page_tables.sentence_of(report)

    def test_one_sentence_says_what_came_of_it(self):
        report = self.example("gpu")
        case = report["cases"][0]
        engine = next(e for e in case["engines"] if e["role"] == "candidate")
        said = self.sentence(report)
        for part in (f"{report_file.labels_of(case)[engine['name']]} is right (", "ms a token",
                     page_charts.digits(engine["ms_per_tok"]["mean"]), "% of the ceiling", "the speed of eager (FASTER)", "depth 0", "Example GPU"):
            self.assertIn(part, said)
        self.assertIn(said, self.read(report).text())
        strict = engine["parity"]["strict_steps"]
        self.assertIn(f" of {strict} sure tokens) and takes", said)
        engine["parity"]["strict_steps"] = 0
        self.assertIn(" is right (by its logits) and takes", self.sentence(report))
        self.assertEqual(page_tables.parity_text(engine), "none is sure")
        engine |= {"verdict": "FAIL_TOKEN", "ms_per_tok": None, "reasons": ["token 3 is 5", "and more"]}
        for other in case["engines"]:
            other["role"] = "candidate" if other is engine else "baseline"
        report["verdict"]["reasons"] = []
        self.assertEqual(self.sentence(report).partition(" is FAIL_TOKEN: ")[0], report_file.labels_of(case)[engine["name"]])
        self.assertTrue(self.sentence(report).endswith("on Example GPU: token 3 is 5"))
        report["verdict"]["reasons"] = ["synthetic: token 3 is 5"]
        self.assertTrue(self.sentence(report).endswith("on Example GPU"))
        report["cases"] = []
        self.assertEqual(self.sentence(report), "")

    def test_the_quickest_candidate_is_told(self):
        report = self.example("gpu")
        engines = [e for e in report["cases"][0]["engines"] if e["ms_per_tok"] is not None]
        slow, quick = engines[:2]
        for engine, mean in ((slow, 7.0), (quick, 3.0)):
            engine["role"], engine["ms_per_tok"]["mean"] = "candidate", mean
        self.assertTrue(self.sentence(report).startswith(report_file.labels_of(report["cases"][0])[quick["name"]]))

    def test_only_the_report_that_is_not_verified_is_stamped(self):
        reports = [self.example("gpu"), self.example("cpu")]
        paths = []
        for number, report in enumerate(reports):
            paths.append(str(self.folder / f"{number}.json"))
            (self.folder / f"{number}.json").write_text(json.dumps(report))
        out = self.folder / "page.html"
        why = "<b>12</b> of 480 figures differ"
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "report_page.py"), *paths, "--out", str(out),
                               "--unverified=", f"--unverified={why}"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = out.read_text()
        self.assertEqual(text.count("NOT VERIFIED</span>"), 1)
        self.assertLess(text.index(f">{reports[0]['verdict']['status']}</span>"), text.index("NOT VERIFIED, do not quote"))
        self.assertIn(f"<title>mkbench: {reports[0]['verdict']['status']}", text)
        self.assertIn("&lt;b&gt;12&lt;/b&gt; of 480", text)
        wrong = self.example("failed")
        wrong["cases"][0]["engines"][1]["parity"]["error_by_position"] = [
            {"at": 3, "error": 7.5, "baseline_error": 0.02, "limit": 0.1}]
        titles = [spec["title"] for spec in plot_report.failure_specs([wrong], [why]).values()]
        self.assertEqual(len(titles), 1)
        for title in (plot_report.title_of(plot_report.collect(reports)[0], [why]), *titles):
            self.assertIn(why, json.dumps(title))


if __name__ == "__main__":
    main("no " + " and no ".join(MISSING) if MISSING else "")
