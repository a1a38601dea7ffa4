"""Calls that stand still, through mkbench: the one line, hang.json, and whom it costs what."""

import json
import os
import pathlib
import shutil
import unittest

from support.cli_support import HostsTest

LIBRARY = pathlib.Path(os.environ["PLUGINS"]) / "misbehaving.so"

# Planted fault of host-twin -> cause, and words of the line. The twin has 8 blocks, tiny has 4 layers.
PLANTED = {
    "block_delayed": ("block_delayed", "waits in phase o_proj of layer 3, step 0, for block 4, whose last arrival is "
                      "epoch 16 of 17: it is still in phase attention of layer 3, step 0"),
    "arrival_lost": ("arrival_lost", "for an arrival that was lost: all 8 blocks have arrived at epoch 17, the counter "
                     "holds 135 of 136"),
    "not_resident": ("not_resident", "waits in phase attention of layer 0, step 0, for blocks 6 to 7, which have not "
                     "begun: 6 of the grid's 8 blocks are on the device at a time"),
    "words_reset": ("words_reset", "waits in phase o_proj of layer 3, step 0, for epoch 17: the counter holds "),
}

# A decoder that never returns from its first decode().
WAITS = """import time


class Decoder:
    def open(self, folder, device, max_context):
        pass

    def prefill(self, ids):
        pass

    def decode(self, n):
        while True:
            time.sleep(0.01)
"""


class HangTest(HostsTest):
    references = None

    def run_it(self, *args, files=True):
        if self.references is None:
            self.references = self.short_reference(prompts=("corpus-1", "other-2"))
        process = self.start("--model", "tiny", "-n", "7", "--blocks", "3", "--time-anyway", "--reference", self.references,
                             *args)
        _, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 7, stderr)
        self.assert_nothing_left(files)
        return stderr

    def only_hang(self, stderr):
        """The one post-mortem of the run; its line was said and is part of the engine's reason."""
        told = json.loads((self.out / "hang.json").read_text())
        self.assertEqual(told["schema"]["id"], "mkbench.hang")
        self.assertEqual(len(told["hangs"]), 1)
        hang = told["hangs"][0]
        self.assertIn(f"mkbench: {hang['line']}; see hang.json\n", stderr)
        self.assertIn(hang["line"], self.engine(self.report(), hang["engine"])["reasons"][0])
        return hang

    def check_verdicts(self, standing, *sound):
        report = self.report()
        self.assertEqual(report["verdict"]["status"], "HANG")
        engine = self.engine(report, standing)
        self.assertEqual(engine["verdict"], "HANG")
        self.assertIsNone(engine["ms_per_tok"])
        for name in ("eager", *sound):
            engine = self.engine(report, name)
            self.assertEqual(engine["verdict"], "PASS", engine["reasons"])
            self.assertGreater(engine["ms_per_tok"]["median"], 0)


class Planted(HangTest):
    def test_each_is_named_before_the_host_is_killed(self):
        for fault, (cause, words) in PLANTED.items():
            with self.subTest(fault=fault):
                self.out = self.folder / fault
                hang = self.only_hang(self.run_it("--timeout", "4", "--plant-fault", fault))
                self.check_verdicts("host-twin")
                self.assertTrue(hang["line"].startswith("HANG: block "), hang["line"])
                self.assertIn(words, hang["line"])
                self.assertEqual(hang["finding"]["cause"], cause)
                self.assertEqual((hang["engine"], hang["killed"], hang["answered"]), ("host-twin", True, True))
                launch = hang["told"]["launch"]
                self.assertEqual([b["block"] for b in launch["blocks"]], list(range(8)))
                self.assertEqual(sum(b["begun"] for b in launch["blocks"]), 6 if fault == "not_resident" else 8)
                self.assertEqual([s["tool"] for s in hang["stacks"]], ["gdb"])
                self.assertTrue(hang["stacks"][0]["text"] or hang["stacks"][0]["why"])

    def test_the_twins_own_watchdog_ends_the_call(self):
        self.out = self.folder / "own"
        stderr = self.run_it("--timeout", "60", "--plant-fault", "arrival_lost")
        hang = self.only_hang(stderr)
        self.check_verdicts("host-twin")
        self.assertFalse(hang["killed"])
        self.assertEqual(hang["stacks"], [])
        self.assertIn(PLANTED["arrival_lost"][1], hang["line"])
        self.assertIn("host-twin: no progress for 10000 ms", stderr)


class Foreign(HangTest):
    def test_a_library_shows_its_progress_word_and_calls(self):
        for name in ("hang", "sound"):
            shutil.copy(LIBRARY, self.folder / f"{name}.so")
        self.out = self.folder / "foreign"
        hang = self.only_hang(self.run_it("--timeout", "4", "--engine", "./hang.so,./sound.so"))
        self.check_verdicts("./hang.so", "./sound.so")
        self.assertEqual(hang["engine"], "./hang.so")
        self.assertRegex(hang["line"],
                         r"^HANG: 'decode' of \./hang\.so does not return in decode\(\) call \d+, its progress word says "
                         r"position \d+$")
        self.assertIsNone(hang["told"]["launch"])
        self.assertEqual(hang["finding"]["cause"], "unknown")

    def test_a_process_that_does_not_answer(self):
        shutil.copy(LIBRARY, self.folder / "stop.so")
        self.out = self.folder / "stop"
        hang = self.only_hang(self.run_it("--timeout", "4", "--engine", "./stop.so"))
        self.assertFalse(hang["answered"])
        self.assertTrue(hang["line"].endswith("and its process does not answer"), hang["line"])

    def test_an_engine_in_python(self):
        (self.folder / "waits.py").write_text(WAITS)
        self.out = self.folder / "python"
        hang = self.only_hang(self.run_it("--timeout", "4", "--engine", "./waits.py", files=False))
        self.check_verdicts("./waits.py")
        self.assertEqual(hang["line"], "HANG: 'decode' of ./waits.py does not return in decode() call 1, and it has no "
                                       "progress word")


if __name__ == "__main__":
    unittest.main()
