"""A claim of one launch that the driver's records show to be untrue. Engines whose launches are known stand in
dev/evidence_lines.py (STRANGERS)."""

import os
import pathlib

from support.cli_support import CliTest, main_or_skipped

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
NO_GPU = "no usable GPU"


class LaunchesOnTheGpu(CliTest):
    def test_an_untrue_claim_of_one_launch(self):
        claim = str(PLUGINS / "one_launch_claim.so")
        result = self.mkbench("--compare", "eager", "--engine", claim, "--device", "cuda", "--model", "tiny", "-n", "64",
                              "--blocks", "2", "--no-plot", "--out", str(self.out))
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        report = self.report()
        engine = self.engine(report, claim)
        trace = engine["launch_trace"]
        if "CUPTI" in trace["problem"]:
            self.skipTest(trace["problem"])
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        self.assertEqual(engine["verdict"], "INTEGRITY")
        self.assertEqual(engine["reasons"][0], "claims one launch for a decode; "
                                               f"{trace['kernels']} were recorded for 64 tokens")
        self.assertIsNone(engine["ms_per_tok"])
        self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")


if __name__ == "__main__":
    main_or_skipped()
