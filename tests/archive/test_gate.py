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
        self.report_of("pace_1", "base", n=8)
        self.report_of("pace_6", "slow", n=8)

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

        # HEAD was edited: as verify, with the same exit code.
        report = json.loads((self.folder / "slow" / "report.json").read_text())
        report["cases"][0]["engines"][1]["samples"][0]["times"]["host_ms"] *= 0.5
        (self.folder / "slow" / "report.json").write_text(json.dumps(report))
        self.assertEqual(self.mkbench("verify", "slow").returncode, INTEGRITY)
        self.expect_refusal(INTEGRITY, ["gate: HEAD: slow/report.json: cases[0]", "mkbench verify lists all"], "base",
                            "slow")
        self.expect_refusal(INTEGRITY, ["gate: BASE: slow/report.json"], "slow/report.json", "base")

    def test_arguments(self):
        self.expect_refusal(BAD_INPUT, ["none"], "none", "none")
        self.expect_refusal(BAD_INPUT, ["--fail-on: 'all' is not one of regression, inconclusive"], "a", "b",
                            "--fail-on", "all")
        self.expect_refusal(BAD_INPUT, ["--junit none/gate.xml: there is no folder none"], "a", "b", "--junit",
                            "none/gate.xml")


class Baselines(GateTest):
    def test_a_run_against_a_baseline(self):
        self.report_of("sound", "first", "--save-baseline", "main", processes=1)
        stored = self.data / "mkbench" / "baselines" / "main" / "report.json"
        self.assertEqual(stored.read_bytes(), (self.folder / "first" / "report.json").read_bytes())

        # Refused before anything was measured: there is no report, not even its folder.
        done = self.run_of("sound", "refused", "--baseline", "main", processes=1, n=12)
        self.assertEqual(done.returncode, BAD_INPUT, done.stdout + done.stderr)
        self.assertIn("baseline main and this run cannot be compared", done.stderr)
        self.assertFalse(self.out.exists())

        # A run whose gate fails ends with the gate's code; stdout that is no Markdown stays one document.
        done = self.run_of("sound", "against", "--baseline", "main", "--fail-on", "inconclusive", "-o", "json",
                           processes=1)
        self.assertEqual(done.returncode, INCONCLUSIVE, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["verdict"]["exit_code"], 0)
        self.assertIn((self.out / "gate.md").read_text(), done.stderr)
        self.assertEqual(self.mkbench("verify", str(self.out)).returncode, 0)


if __name__ == "__main__":
    unittest.main()
