"""Engines that sleep for each token, in prefill too, through the real binary: a right one passes and says which cache
lengths were judged, one that the time budget ends is INCOMPLETE, and a wrong one is FAIL_TOKEN however it ends."""

import os
import pathlib
import unittest
import xml.etree.ElementTree

from support.cli_support import CliTest

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
CONTEXT = 96


class SlowEngines(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.short_model(CONTEXT)

    def judge(self, command, name, *args):
        """Exit code, the engine's part of the report, and stdout."""
        path = str(PLUGINS / f"{name}.so")
        result = self.mkbench(command, "--engine", path, *self.model, "--device", "cpu", "--out", str(self.out), *args)
        self.assertTrue(self.out.is_dir(), result.stderr)
        report = self.report()
        self.assertEqual(report["verdict"]["exit_code"], result.returncode, result.stderr)
        self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")
        return result.returncode, self.engine(report, path), result.stdout

    def junit(self, name):
        root = xml.etree.ElementTree.parse(self.out / "junit.xml").getroot()
        return next(s for s in root if name in s.get("name"))

    def test_right_and_slow_passes_and_says_its_coverage(self):
        code, engine, stdout = self.judge("parity", "slow_right")
        self.assertEqual((code, engine["verdict"]), (0, "PASS"), engine["reasons"])
        parity = engine["parity"]
        coverage = (f"cache lengths 1-{CONTEXT} of {CONTEXT} judged (walked {CONTEXT}; prefills of 14, 15, 16, ..., "
                    f"{CONTEXT - 1} rows)")
        self.assertEqual(parity["coverage"], coverage)
        self.assertEqual((parity["lengths_judged"], parity["lengths_known"]), (CONTEXT, CONTEXT))
        self.assertEqual(parity["precision"], "fp32-accumulate")
        self.assertIn(coverage, stdout)
        self.assertIn(coverage, (self.out / "report.md").read_text())
        told = {p.get("name"): p.get("value") for p in self.junit("slow_right").iter("property")}
        self.assertEqual(told, {"precision": "fp32-accumulate", "coverage": coverage})

    def test_a_budget_that_is_too_small_is_incomplete(self):
        code, engine, stdout = self.judge("parity", "slow_right", "--time-budget", "2")
        self.assertEqual((code, engine["verdict"]), (5, "INCOMPLETE"), engine["reasons"])
        reason = engine["reasons"][0]
        self.assertIn("the time budget of 2 s (--time-budget) ended; reached: ", reason)
        self.assertIn(f"of the {CONTEXT} cache lengths that a pass needs", reason)
        checks = {c["name"]: c for c in engine["parity"]["checks"]}
        self.assertEqual(checks["sweep"]["status"], "not_applicable")
        self.assertIn("INCOMPLETE", stdout)
        failure = next(c for c in self.junit("slow_right") if c.get("name") == "verdict").find("failure")
        self.assertEqual(failure.get("type"), "INCOMPLETE")
        self.assertIn("cache lengths", failure.get("message"))

    def test_wrong_and_slow_is_fail_token_however_it_ends(self):
        cases = {
            ("run", "slow_wrong", "--n-gen", "8", "--blocks", "1", "--no-plot"): "",
            ("parity", "slow_wrong", "--time-budget", "0.1"): "",
            ("run", "slow_wrong_hangs", "--n-gen", "8", "--timeout", "3", "--no-plot"): "; then: ",
            ("parity", "slow_wrong_hangs", "--timeout", "3"): "; then: ",
        }
        for number, ((command, name, *args), ending) in enumerate(cases.items()):
            with self.subTest(command=command, name=name):
                self.out = self.folder / f"report-{number}"
                code, engine, _ = self.judge(command, name, *args)
                self.assertEqual((code, engine["verdict"]), (3, "FAIL_TOKEN"), engine["reasons"])
                self.assertIn("prompt 'corpus-17' position 25: ", engine["reasons"][0])
                if ending:
                    self.assertRegex(engine["reasons"][0], "; then: .*no progress for .*'decode'")


if __name__ == "__main__":
    unittest.main()
