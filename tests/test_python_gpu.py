"""HF transformers behind references/decoder.py on a GPU: full-size synthetic by the real command line."""

import sys
import unittest

from cli_support import ROOT, CliTest

NO_GPU = "no usable GPU"


class Gpu(CliTest):
    def test_transformers_on_full_size(self):
        path = str(ROOT / "tests" / "engines" / "hf_decoder.py")
        result = self.bench("--engine", path, "--device", "cuda", "--model", "synthetic", "-n", "16", "--blocks", "2",
                            timeout=280)
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        engine = self.engine(self.report(), path)
        self.assertEqual(engine["verdict"], "PASS", engine["reasons"])
        self.assertEqual(engine["resolved_name"], "hf@hf_decoder.py")
        self.assertTrue(engine["device"].startswith("cuda:0 "), engine["device"])
        self.assertGreater(engine["gpu_ms"], 0)
        self.assertEqual(engine["receipts_wrong"], 0)
        self.assertLessEqual(engine["process"]["crossing_us"], 100)


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    if outcome.skipped and len(outcome.skipped) == outcome.testsRun:
        sys.exit(77)
    sys.exit(not outcome.wasSuccessful())
