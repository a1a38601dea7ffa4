"""mkbench gate on real reports of the CPU: two runs of one version, one that is slower, what is refused; baselines that
runs keep and are held against."""

import json
import os
import pathlib
import unittest
import xml.etree.ElementTree as ElementTree

from support.cli_support import CliTest

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
        self.report_of("slow_400", "slow")

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
        self.assertTrue(2 < row["ratio"] < 12, row)
        suites = ElementTree.parse(self.folder / "gate.xml").getroot()
        self.assertEqual((suites.get("tests"), suites.get("failures"), suites.get("skipped")), ("2", "1", "1"))
        self.assertEqual(suites.find("testsuite/testcase/failure").get("type"), "REGRESSION")

        # An improvement, and a slow-down that the caller allows.
        done = self.gate("slow", "base")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("**PASS**", done.stdout)
        self.assertEqual(self.gate("base", "slow", "--max-regress", "10").returncode, 0)
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
        self.report_of("slow_400", "head", processes=1)
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


class Baselines(GateTest):
    def stored(self, name="main"):
        return self.data / "mkbench" / "baselines" / name / "report.json"

    def test_a_run_against_a_baseline(self):
        self.report_of("sound", "first", "--save-baseline", "main")
        self.assertEqual(self.stored().read_bytes(), (self.folder / "first" / "report.json").read_bytes())
        self.assertFalse((self.folder / "first" / "gate.json").exists())

        # One that takes longer ends with the gate's code, leaves its files, and is not kept.
        done = self.run_of("slow_400", "slow", "--baseline", "main", "--save-baseline", "main")
        self.assertEqual(done.returncode, REGRESSION, done.stdout + done.stderr)
        self.assertIn("**PASS** (exit code 0", done.stdout)  # the run's own result
        self.assertIn("**REGRESSION** (exit code 4)", done.stdout)
        self.assertIn("baseline main: not kept: the gate is REGRESSION", done.stderr)
        self.assertEqual(self.stored().read_bytes(), (self.folder / "first" / "report.json").read_bytes())
        result = json.loads((self.out / "gate.json").read_text())
        self.assertEqual((result["base"]["report"], result["verdict"]["status"]), ("baseline main", "REGRESSION"))
        self.assertIn((self.out / "gate.md").read_text(), done.stdout)
        ElementTree.parse(self.out / "gate-junit.xml")
        self.assertEqual(self.mkbench("verify", str(self.out)).returncode, 0)

        # Allowed; stdout that is no Markdown stays one document.
        done = self.run_of("slow_400", "allowed", "--baseline", "main", "--max-regress", "10", "--save-baseline", "new",
                           "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        json.loads(done.stdout)
        self.assertIn("**PASS** (exit code 0)", done.stderr)
        self.assertIn("baseline new: kept: ", done.stderr)
        self.assertTrue(self.stored("new").exists())

    def refused(self, parts, *args, status=BAD_INPUT, **kwargs):
        """Refused before anything was measured: there is no report, not even its folder."""
        done = self.run_of("sound", "refused", *args, **kwargs)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertFalse(self.out.exists())

    def test_refused_before_the_run(self):
        self.refused(["--baseline main: found nothing in ", "there is none yet"], "--baseline", "main", processes=1)
        self.report_of("sound", "first", "--save-baseline", "main", processes=1)
        self.refused(["--baseline other: found nothing in ", "there are main"], "--baseline", "other", processes=1)
        for name in ("../main", "a b", ".main", "a/b", "x" * 101):
            self.refused(["is no name; wanted letters"], "--save-baseline", name, processes=1)
            self.refused(["is no name; wanted letters"], "--baseline", name, processes=1)
        self.refused(["baseline main and this run cannot be compared", "axes.n_gen: BASE '24', HEAD '12'"],
                     "--baseline", "main", processes=1, n=12)
        self.refused(["engine 'eager': is not timed in HEAD"], "--baseline", "main", "--compare", "none", processes=1)
        self.refused(["--max-regress: found 0.001, wanted at least 0.01"], "--baseline", "main", "--max-regress",
                     "0.001", processes=1)
        self.refused(["--max-regress goes with --baseline"], "--max-regress", "0.1", processes=1)
        self.refused(["--fail-on goes with --baseline"], "--fail-on", "inconclusive", processes=1)
        report = json.loads(self.stored().read_text())
        report["cases"][0]["engines"][1]["samples"][0]["times"]["host_ms"] *= 2
        self.stored().write_text(json.dumps(report))
        self.refused(["--baseline main: ", "mkbench verify lists all"], "--baseline", "main", processes=1,
                     status=INTEGRITY)

    def test_a_run_that_fails_is_not_kept(self):
        self.out = self.folder / "wrong"
        done = self.bench("--reference", self.references, "--plant-fault", "swap_gate_up", "--save-baseline", "main",
                          env_more={"XDG_DATA_HOME": str(self.data)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("baseline main: not kept: the run is FAIL_", done.stderr)
        self.assertFalse(self.stored().exists())

    def test_one_that_cannot_be_kept(self):
        (self.data / "mkbench").mkdir(parents=True)
        (self.data / "mkbench" / "baselines").write_text("a file in its way")
        done = self.run_of("sound", "first", "--save-baseline", "main", processes=1)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("error: --save-baseline: cannot make ", done.stderr)


if __name__ == "__main__":
    unittest.main()
