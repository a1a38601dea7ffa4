"""mkbench compare on the CPU: two builds' engines and two files in one run, with verdicts of the gate."""

import json
import os
import pathlib
import shutil
import unittest

from support.cli_support import CliTest

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
ENGINES = PLUGINS.parents[1] / "engines"
BAD_INPUT, REGRESSION = 2, 4


class Compare(CliTest):
    def setUp(self):
        super().setUp()
        self.references = self.short_reference()

    def compare(self, base, head, *args):
        return self.bench("compare", str(base), str(head), "--reference", self.references, "--blocks", "10", *args,
                          timeout=200)

    def gate_of(self, done, status):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        gate = json.loads((self.out / "gate.json").read_text())
        self.assertEqual(gate["verdict"]["exit_code"], status)
        return gate

    def build(self, name, library=ENGINES / "host-twin.so"):
        folder = self.folder / name / "engines"
        folder.mkdir(parents=True)
        shutil.copy(library, folder / "host-twin.so")
        return folder.parent

    def test_two_builds(self):
        self.build("old")
        self.build("new")
        done = self.compare("old/", "new")
        gate = self.gate_of(done, 0)
        self.assertIn("## HEAD against BASE", done.stdout)
        (row,) = gate["rows"]
        self.assertEqual((row["engine"], row["base_processes"], row["head_processes"]), ("host-twin", 5, 5))
        self.assertIn(row["verdict"], ("PASS", "INCONCLUSIVE"))
        self.assertLess(row["ci"]["low"], row["ratio"])
        self.assertEqual((gate["base"]["report"], gate["head"]["report"]), ("old", "new"))
        # The run's own ratio is that of BASE's time over HEAD's.
        report = self.report()
        ratio = next(c for c in report["cases"][0]["comparisons"] if c["speedup"])
        self.assertEqual((ratio["baseline"], ratio["candidate"]), ("old/engines/host-twin.so", "new/engines/host-twin.so"))
        self.assertAlmostEqual(ratio["speedup"] * row["ratio"], 1)
        self.assertEqual(report["cases"][0]["engines"][0]["timed"], False)  # eager judges
        self.assertEqual(self.mkbench("verify", str(self.out)).returncode, 0)

    def test_a_slower_head(self):
        base, slow = PLUGINS / "slowed-cpu" / "pace_1.so", PLUGINS / "slowed-cpu" / "pace_6.so"
        gate = self.gate_of(self.compare(base, slow), REGRESSION)
        self.assertTrue(2 < gate["rows"][0]["ratio"] < 12, gate["rows"][0])
        self.assertEqual(gate["rows"][0]["engine"], str(slow))
        self.assertIn("pace_6.so", (self.out / "gate-junit.xml").read_text())
        told = self.mkbench("report", str(self.out), "-o", "annotations")
        self.assertRegex(told.stdout, rf"^::error file={slow},title=mkbench REGRESSION%3A gate / .* / {slow}::REGRESSION: takes .*\n$")
        for change, said in (({"schema": {"id": "mkbench.gate", "version": "2.0.0"}}, "gate.json: schema: found .*2.0.0.*, wanted .*mkbench.gate.*1.0.0"),
                             ({"rows": [{"case": 1}]}, r"gate.json: rows\[0\]\.case: found 1")):
            (self.out / "gate.json").write_text(json.dumps(gate | change))
            told = self.mkbench("report", str(self.out), "-o", "annotations")
            self.assertEqual(told.returncode, 2, told.stdout)
            self.assertRegex(told.stderr, said)
            self.assertEqual(self.mkbench("report", str(self.out), "-o", "csv").returncode, 0)  # it needs no gate

    def test_what_is_refused(self):
        self.build("old")
        (self.folder / "empty").mkdir()
        for args, wanted in (
                (["old"], "found 1 builds, wanted two"),
                (["old", "./old/"], "found old twice"),
                (["old", "none"], "none: found no such folder"),
                (["old", "engine.so"], "found a file and a folder"),
                (["old", "empty"], "empty/engines/host-twin.so: found nothing"),
                (["a.so", "b.so"], "a.so"),
                (["a.so", "b.so", "--engine", "ring"], "found --engine"),
                (["old", "empty", "--engine", "./x.so"], "--engine ./x.so: found a file"),
                (["old", "empty", "--engine", "hf"], "--engine hf: found an engine in Python"),
                (["old", "empty", "--baseline", "main"], "found --baseline"),
                (["old", "empty", "--processes", "4", "--blocks", "3"], "--blocks 3 is below --processes 4"),
        ):
            with self.subTest(args=args):
                done = self.bench("compare", *args)
                self.assertEqual((done.returncode, done.stdout), (BAD_INPUT, ""), done.stderr)
                self.assertIn(wanted, done.stderr)
                self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
