"""The CUDA folder of `mkbench new-engine` on a GPU: as it is it fails with its own words, filled in it passes."""

import os
import pathlib
import subprocess
import sys
import unittest

import test_new_engine
from cli_support import environment


class OnTheGpu(test_new_engine.NewEngineTest):
    def judged(self, folder):
        tools = f"{pathlib.Path(os.environ['CUDACXX']).parent}:{os.environ['PATH']}"
        subprocess.run(["make"], cwd=folder, env=environment(PATH=tools), check=True, stdout=subprocess.DEVNULL)
        self.out = folder / "report"
        result = self.bench("--engine", str(folder / "engine.so"), "--device", "cuda", "--reference", self.references())
        return result, self.engine(self.report(), str(folder / "engine.so"))

    def test_empty_and_filled_in(self):
        doctor = self.mkbench("doctor", "--python", "none", "--require", "vram=4")
        if doctor.returncode != 0:
            self.skipTest("no usable GPU")
        result, engine = self.judged(self.new("cuda", "empty"))
        self.assertEqual((result.returncode, engine["verdict"]), (1, "RUNTIME_ERROR"), result.stdout + result.stderr)
        self.assertRegex(engine["reasons"][0], r"(prefill|decode) is not written yet: engine\.cu:\d+")
        result, engine = self.judged(self.new("cuda", filled=True))
        self.assertEqual((result.returncode, engine["verdict"]), (0, "PASS"), result.stdout + result.stderr)
        self.assertEqual(engine["resolved_name"], "my-kernel@engine.so")


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    if outcome.skipped and len(outcome.skipped) == outcome.testsRun:
        sys.exit(77)
    sys.exit(not outcome.wasSuccessful())
