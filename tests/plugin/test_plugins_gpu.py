"""The CUDA example through the real binary on a GPU: the intact one passes with a time, broken ones get a verdict."""

import os
import pathlib

from support.cli_support import CliTest, main_or_skipped

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
NO_GPU = "no usable GPU"


class OnTheGpu(CliTest):
    def judge(self, name):
        references = self.short_reference(prompts=("corpus-17", "other-2"))
        path = str(PLUGINS / f"{name}.so")
        result = self.bench("--engine", path, "--device", "cuda", "--reference", references)
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        return result, self.engine(self.report(), path)

    def test_the_whole_one(self):
        result, engine = self.judge("naive_cuda")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(engine["verdict"], "PASS")
        self.assertEqual(engine["resolved_name"], "naive-cuda@naive_cuda.so")
        self.assertLess(engine["parity"]["r_rms"], 1)
        self.assertGreater(engine["gpu_ms"], 0)
        self.assertEqual(len(engine["samples"]), 2)

    def test_one_that_gives_each_id_to_the_host(self):
        result, engine = self.judge("step_cuda")
        self.assertEqual((result.returncode, engine["verdict"]), (0, "PASS"), result.stdout + result.stderr)
        self.assertEqual(engine["resolved_name"], "step-cuda@step_cuda.so")

    def test_full_size_by_the_closed_form_without_logits(self):
        path = str(PLUGINS / "naive_cuda_ids.so")
        result = self.bench("--engine", path, "--device", "cuda", "--model", "synthetic", "-d", "32", "-n", "16",
                            "--blocks", "1")
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        self.assertEqual(report["cases"][0]["reference"]["timed_check"], "closed form")
        engine = self.engine(report, path)
        self.assertEqual(engine["verdict"], "PASS")
        self.assertIsNone(engine["parity"]["r_rms"])
        self.assertEqual(engine["receipts_checked"], 16)
        self.assertEqual(engine["receipts_wrong"], 0)

    def test_wrong_theta(self):
        result, engine = self.judge("naive_cuda_theta")
        self.assertEqual((result.returncode, engine["verdict"]), (3, "FAIL_TOKEN"), engine["reasons"])

    def test_a_third_of_the_vocabulary_never_scored(self):
        result, engine = self.judge("naive_cuda_vocab")
        self.assertEqual((result.returncode, engine["verdict"]), (3, "FAIL_SELF"), engine["reasons"])

    def test_a_write_behind_the_ids(self):
        result, engine = self.judge("naive_cuda_overrun")
        self.assertEqual((result.returncode, engine["verdict"]), (8, "INTEGRITY"), engine["reasons"])


if __name__ == "__main__":
    main_or_skipped()
