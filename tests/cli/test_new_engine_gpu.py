"""The CUDA folder of `mkbench new-engine` on a GPU: as it is it fails with its own words, filled in it passes."""

import shutil
import unittest

import test_new_engine
from support.cli_support import main_or_skipped


@unittest.skipIf(shutil.which("make") is None, "there is no make on PATH")
class OnTheGpu(test_new_engine.NewEngineTest):
    def judged(self, folder):
        made = self.shell(folder, "make")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.out = folder / "report"
        result = self.bench("--engine", str(folder / "engine.so"), "--device", "cuda", "--reference", self.references())
        if result.returncode == 6 and "no usable GPU" in result.stderr:
            self.skipTest("no usable GPU")
        return result, self.engine(self.report(), str(folder / "engine.so"))

    def test_empty_and_filled_in(self):
        result, engine = self.judged(self.new("cuda", "empty"))
        self.assertEqual((result.returncode, engine["verdict"]), (1, "RUNTIME_ERROR"), result.stdout + result.stderr)
        self.assertRegex(engine["reasons"][0], r"steps is not written yet: engine\.cu:\d+")
        result, engine = self.judged(self.new("cuda", filled=True))
        self.assertEqual((result.returncode, engine["verdict"]), (0, "PASS"), result.stdout + result.stderr)
        self.assertEqual(engine["resolved_name"], "my-kernel@engine.so")


if __name__ == "__main__":
    main_or_skipped()
