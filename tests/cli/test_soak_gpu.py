"""`mkbench soak` of ring and plain on a card, short; and the faults that only a soak sees, planted in plain."""

import json
import pathlib

from support.cli_support import CliTest, main_or_skipped

NO_GPU = "no usable GPU"


def faults():
    """The faults, each with the exit codes that show it."""
    text = pathlib.Path(__file__).with_name("soak_faults_gpu.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [(fault, [int(code) for code in codes]) for fault, *codes in rows]


class SoakOnCard(CliTest):
    def soak(self, *args, wanted, out):
        result = self.mkbench("soak", "--device", "cuda", "--model", "synthetic:cut", "-q", "--timeout", "20", "--out",
                              str(self.folder / out), *args)
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        self.assertIn(result.returncode, wanted, result.stdout + result.stderr)
        return json.loads((self.folder / out / "soak.json").read_text())

    def test_ours_fail_none(self):
        for engine in ("ring", "plain"):
            told = self.soak("--engine", engine, "--launches", "200", "--tokens", "2000", wanted=(0,), out=engine)
            self.assertTrue(told["stressed"])
            self.assertEqual(told["left_out"] == "", engine == "plain")

    def test_faults_in_plain(self):
        for fault, wanted in faults():
            with self.subTest(fault=fault):
                told = self.soak("--engine", "plain", "--launches", "20000", "--tokens", "1000000", "--minutes", "0.5",
                                 "--plant-fault", fault, wanted=wanted, out=fault)
                self.assertGreater(len(told["failures"]), 0)


if __name__ == "__main__":
    main_or_skipped()
