"""`mkbench soak` of ring and plain on a card, short; and the faults that only a soak sees, planted in plain."""

import json

from cli_support import CliTest, main_or_skipped

NO_GPU = "no usable GPU"


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
        for fault, wanted in (("stops_at_2048", (3,)), ("rows_late", (3,)), ("counter_overflow", (3, 7)),
                              ("words_reset", (7,))):
            with self.subTest(fault=fault):
                told = self.soak("--engine", "plain", "--launches", "20000", "--tokens", "1000000", "--minutes", "0.5",
                                 "--plant-fault", fault, wanted=wanted, out=fault)
                self.assertGreater(len(told["failures"]), 0)


if __name__ == "__main__":
    main_or_skipped()
