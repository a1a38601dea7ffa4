"""mkbench gate on real reports of the CPU: two runs of one version, one that is slower, what is refused; baselines that
runs keep and are held against."""

import json
import os
import pathlib
import shutil
import unittest
import xml.etree.ElementTree as ElementTree

from cli_support import CliTest

SLOWED = pathlib.Path(os.environ["PLUGINS"]) / "slowed-cpu"
PROCESSES = 6
BAD_INPUT, REGRESSION, INCONCLUSIVE, INTEGRITY = 2, 4, 5, 8


class GateTest(CliTest):
    """Runs of ./engine.so, which is a link to one of the slowed libraries, and of eager beside it."""

    def setUp(self):
        super().setUp()
        self.references = self.short_reference()
        self.data = self.folder / "data"

    def run_of(self, library, out, *args, processes=PROCESSES, n=24):
        (self.folder / "engine.so").unlink(missing_ok=True)
        (self.folder / "engine.so").symlink_to(SLOWED / f"{library}.so")
        self.out = self.folder / out
        return self.bench("--engine", "./engine.so", "--reference", self.references, "-n", str(n), "--processes",
                          str(processes), "--blocks", str(3 * processes), *args, timeout=200,
                          env_more={"XDG_DATA_HOME": str(self.data)})

    def report_of(self, library, out, *args, **kwargs):
        done = self.run_of(library, out, *args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def gate(self, *args):
        return self.mkbench("gate", *args, env={"XDG_DATA_HOME": str(self.data)})

    def expect_refusal(self, status, parts, *args):
        done = self.gate(*args)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)


class Gate(GateTest):
    def test_two_versions(self):
        self.report_of("sound", "base")
        self.report_of("sound_copy", "same")
        self.report_of("slow_50", "slow")

        # The same again: whatever noise makes of it, it is no regression.
        done = self.gate("base", "same")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("## HEAD against BASE", done.stdout)
        self.assertRegex(done.stdout, r"\*\*(PASS|INCONCLUSIVE)\*\* \(exit code 0\)")
        self.assertIn("no calibration of this machine", done.stdout)

        done = self.gate("base", "slow", "--junit", "gate.xml", "-o", "json")
        self.assertEqual(done.returncode, REGRESSION, done.stdout + done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["schema"]["id"], "mkbench.gate")
        self.assertEqual((result["verdict"]["status"], result["verdict"]["exit_code"]), ("REGRESSION", REGRESSION))
        row = next(r for r in result["rows"] if r["engine"] == "./engine.so")
        self.assertEqual((row["base_processes"], row["head_processes"], row["control"]), (PROCESSES, PROCESSES, "eager"))
        self.assertTrue(1.2 < row["ratio"] < 1.9, row)
        suites = ElementTree.parse(self.folder / "gate.xml").getroot()
        self.assertEqual((suites.get("tests"), suites.get("failures"), suites.get("skipped")), ("2", "1", "1"))
        self.assertEqual(suites.find("testsuite/testcase/failure").get("type"), "REGRESSION")

        # An improvement, and a slow-down that the caller allows.
        done = self.gate("slow", "base")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("**PASS**", done.stdout)
        self.assertEqual(self.gate("base", "slow", "--max-regress", "3").returncode, 0)
        self.expect_refusal(BAD_INPUT, ["--max-regress: found 0.005, wanted at least 0.01"], "base", "slow",
                            "--max-regress", "0.005")

        # HEAD was edited: as verify, with the same exit code.
        report = json.loads((self.folder / "slow" / "report.json").read_text())
        report["cases"][0]["engines"][1]["samples"][0]["times"]["host_ms"] *= 0.5
        (self.folder / "slow" / "report.json").write_text(json.dumps(report))
        self.assertEqual(self.mkbench("verify", "slow").returncode, INTEGRITY)
        self.expect_refusal(INTEGRITY, ["gate: HEAD: slow/report.json: cases[0]", "mkbench verify lists all"], "base",
                            "slow")
        self.expect_refusal(INTEGRITY, ["gate: BASE: slow/report.json"], "slow/report.json", "base")

    def test_one_process(self):
        self.report_of("sound", "base", processes=1)
        self.report_of("slow_50", "head", processes=1)
        done = self.gate("base", "head")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("one process gives no interval: BASE has 1, HEAD 1; --processes takes more", done.stdout)
        self.assertIn("**INCONCLUSIVE** (exit code 0)", done.stdout)
        self.assertEqual(self.gate("base", "head", "--fail-on", "inconclusive").returncode, INCONCLUSIVE)

        # What differs is named, all of it.
        self.report_of("sound", "other", "--compare", "none", processes=1, n=12)
        self.expect_refusal(BAD_INPUT, ["gate: base/report.json and other/report.json cannot be compared",
                                        "axes.n_gen: BASE '24', HEAD '12'"], "base", "other")
        self.report_of("sound", "alone", "--compare", "none", "--confidence", "0.9", processes=1)
        self.expect_refusal(BAD_INPUT, ["meta.options.confidence: BASE '0.95', HEAD '0.9'",
                                        "engine 'eager': is not timed in HEAD"], "base", "alone")

    def test_a_wrong_engine_is_its_verdict(self):
        for out, flags, status in (("right", (), 0), ("wrong", ("--plant-fault", "swap_gate_up"), 3)):
            self.out = self.folder / out
            done = self.bench("--reference", self.references, *flags)
            self.assertEqual(done.returncode, status, done.stderr)
        verdict = self.report()["verdict"]["status"]
        done = self.gate("right", "wrong")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn(f"**{verdict}** (exit code 3)", done.stdout)

    def test_arguments(self):
        self.expect_refusal(BAD_INPUT, ["gate: found 1 reports, wanted two, BASE and HEAD"], "base")
        self.expect_refusal(BAD_INPUT, ["none"], "none", "none")
        self.expect_refusal(BAD_INPUT, ["--max-regress: 'x' is not"], "a", "b", "--max-regress", "x")
        self.expect_refusal(BAD_INPUT, ["--fail-on: 'all' is not one of regression, inconclusive"], "a", "b",
                            "--fail-on", "all")
        self.expect_refusal(BAD_INPUT, ["--junit none/gate.xml: there is no folder none"], "a", "b", "--junit",
                            "none/gate.xml")


if __name__ == "__main__":
    unittest.main()
