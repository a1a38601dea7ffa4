"""Launches that the driver recorded, of engines whose launches are known; a claim of one launch that is untrue."""

import os
import pathlib
import sys
import unittest

from cli_support import CliTest

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
NO_GPU = "no usable GPU"


class LaunchesOnTheGpu(CliTest):
    def traced(self, model, *engines):
        result = self.mkbench("--compare", "eager", "--engine", ",".join(map(str, engines)), "--device", "cuda",
                              "--model", model, "-n", "64", "--blocks", "2", "--no-plot", "--out", str(self.out))
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        report = self.report()
        traces = []
        for name in ("eager", *map(str, engines)):
            trace = self.engine(report, name)["launch_trace"]
            if "CUPTI" in trace["problem"]:
                self.skipTest(trace["problem"])
            self.assertEqual(trace["problem"], "")
            self.assertEqual(trace["tokens"], 64)
            self.assertGreater(trace["busy_ms"], 0)
            self.assertGreaterEqual(trace["wall_ms"], trace["busy_ms"])
            traces.append(trace)
        return result, report, traces

    def test_one_launch_and_hundreds(self):
        result, _, (eager, plain) = self.traced("synthetic", "plain")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual((plain["kernels"], plain["graph_launches"]), (1, 0))
        self.assertEqual(plain["copies"], 2)  # ids in, ids out
        self.assertGreaterEqual(plain["synchronisations"], 1)
        self.assertIn("plain: 1 launch for 64 tokens, 2 copies", result.stdout)
        self.assertGreater((eager["kernels"] + eager["graph_launches"]) / 64, 100)
        self.assertRegex(result.stdout, "eager: [0-9.,]+ launches a token.*; the GPU idled")

    def test_a_library_of_many_kernels(self):
        naive = PLUGINS / "naive_cuda.so"
        result, _, (_, trace) = self.traced("tiny", naive)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertGreater(trace["kernels"] / 64, 10)

    def test_an_untrue_claim_of_one_launch(self):
        claim = str(PLUGINS / "one_launch_claim.so")
        result, report, (_, trace) = self.traced("tiny", claim)
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        engine = self.engine(report, claim)
        self.assertEqual(engine["verdict"], "INTEGRITY")
        self.assertEqual(engine["reasons"][0], "claims one launch for a decode; "
                                               f"{trace['kernels']} were recorded for 64 tokens")
        self.assertIsNone(engine["ms_per_tok"])
        self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    if outcome.skipped and len(outcome.skipped) == outcome.testsRun:
        sys.exit(77)
    sys.exit(not outcome.wasSuccessful())
