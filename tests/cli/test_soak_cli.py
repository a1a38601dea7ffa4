"""`mkbench soak` on the CPU: 0 of N, a state that is gone on with, planted faults, libraries, and docs/soak.md."""

import json
import os
import pathlib
import shlex
import subprocess
import time
import unittest

from support.cli_support import BINARY, HostsTest, send_interrupt
from support.page_blocks import blocks

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
# The fields of a state that say when and how the soak was interrupted.
TIMES = ("seconds", "interruptions", "asked_minutes")


class SoakTest(HostsTest):
    def soak(self, *args, wanted=0, **kwargs):
        result = self.mkbench("soak", "--device", "cpu", "-q", *args, **kwargs)
        self.assertEqual(result.returncode, wanted, result.stdout + result.stderr)
        return result

    def told(self, folder=None):
        told = json.loads(((folder or self.out) / "soak.json").read_text())
        self.assertEqual(told["schema"]["id"], "mkbench.soak")
        return told

    def counts(self, told):
        return {c["check"]: (c["looked"], c["failed"]) for c in told["counts"]}


class Sound(SoakTest):
    def test_the_twin_fails_none(self):
        result = self.soak("--launches", "60", "--tokens", "100", "--context", "256", "--out", str(self.out))
        told = self.told()
        self.assertEqual((told["verdict"], told["exit_code"], told["failures"]), ("PASS", 0, []))
        counts = self.counts(told)
        self.assertGreaterEqual(counts["launches"][0], 60)
        self.assertGreaterEqual(counts["tokens"][0], 100)
        self.assertEqual(sum(failed for _, failed in counts.values()), 0)
        self.assertTrue(told["stressed"])
        self.assertGreater(told["near_32_bits"], 0)
        looked = counts["launches"][0]
        self.assertIn(f"0 of {looked:,}, so less than 3/{looked:,} = ", result.stdout)
        self.assertEqual(result.stdout, (self.out / "soak.md").read_text())

    def test_a_library_is_soaked(self):
        self.soak("--engine", f"{PLUGINS}/naive_cpu.so", "--launches", "20", "--tokens", "20", "--context", "128",
                  "--out", str(self.out))
        told = self.told()
        self.assertFalse(told["stressed"])
        self.assertEqual(told["near_32_bits"], 0)
        self.assertEqual(len(told["identity"]["engine_sha256"]), 64)

    def test_one_step_is_repeated(self):
        self.soak("--step", "9", "--context", "128", "--out", str(self.out))
        self.assertEqual(self.told()["steps"], 1)

    def test_a_state_that_is_not_there(self):
        self.assertIn("nowhere/soak.json", self.soak("--resume", "nowhere", wanted=2).stderr)


class Resumed(SoakTest):
    LIMITS = ("--launches", "200", "--tokens", "10", "--context", "128", "--seed", "7")

    def test_ctrl_c_and_go_on_gives_the_counts_of_one_run(self):
        whole = self.folder / "whole"
        self.soak(*self.LIMITS, "--out", str(whole))
        interrupted = 0
        command = ["soak", *self.LIMITS, "--out", str(self.out)]
        for _ in range(20):
            process = self.start_soak(command)
            self.wait_for_steps(process)
            send_interrupt(process)
            stdout, stderr = process.communicate(timeout=60)
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 130, stdout + stderr)
            self.assertEqual(self.told()["verdict"], "INTERRUPTED")
            self.assertIn(f"to go on: mkbench soak --resume {self.out}", stderr)
            interrupted += 1
            command = ["soak", "--resume", str(self.out), *self.LIMITS[:4]]
            if interrupted == 2:
                self.soak("--resume", str(self.out), *self.LIMITS[:4])
                break
        self.assertGreater(interrupted, 0)
        self.assertEqual({k: v for k, v in self.told().items() if k not in TIMES},
                         {k: v for k, v in self.told(whole).items() if k not in TIMES})
        self.assert_nothing_left()

    def start_soak(self, command):
        process = subprocess.Popen([BINARY, *command, "--device", "cpu", "-q"], cwd=self.folder, env=self.own(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def wait_for_steps(self, process):
        """Waits until the state on disk has gone on, or the soak is over."""
        state = self.out / "soak.json"
        before = state.read_text() if state.exists() else ""
        while process.poll() is None:
            if state.exists() and state.read_text() != before:
                return
            time.sleep(0.05)

    def test_the_state_of_another_soak_is_refused(self):
        self.soak("--launches", "5", "--tokens", "1", "--context", "128", "--seed", "3", "--out", str(self.out))
        for args, words in ((("--seed", "4"), "its seed is '3', wanted '4'"),
                            (("--engine", "compiled"), "its engine is 'host-twin', wanted 'compiled'"),
                            (("--model", "tiny-untied"), "its model is 'tiny', wanted 'tiny-untied'"),
                            (("--context", "256"), "its context is '128', wanted '256'")):
            self.assertIn(words, self.soak("--resume", str(self.out), *args, wanted=2).stderr)
        told = self.told()
        told["identity"]["build"] = "another"
        (self.out / "soak.json").write_text(json.dumps(told))
        self.assertIn("its build is 'another', wanted '", self.soak("--resume", str(self.out), wanted=2).stderr)


class Faults(SoakTest):
    def failed(self, *args, wanted, launches=100000, tokens=1000000):
        self.soak("--launches", str(launches), "--tokens", str(tokens), "--minutes", "1", "--out", str(self.out), *args,
                  wanted=wanted)
        return self.told()

    def test_a_library_that_differs_in_every_50th_call(self):
        told = self.failed("--engine", f"{PLUGINS}/seldom.so", "--context", "128", wanted=3, launches=300, tokens=1)
        self.assertIn(told["verdict"], ("NONDETERMINISTIC", "FAIL_TOKEN"))
        looked, failed = self.counts(told)["launches"]
        self.assertGreater(failed, 3)
        self.assertLess(failed, looked / 10)
        again = told["failures"][0]["command"]
        self.assertRegex(again, r"^mkbench soak --device cpu --engine \S+seldom.so --model tiny --seed 1 --context 128 "
                                r"--step \d+$")

    def test_rows_that_are_late(self):
        told = self.failed("--context", "256", "--plant-fault", "rows_late", wanted=3)
        self.assertIn(told["verdict"], ("NONDETERMINISTIC", "FAIL_TOKEN"))
        # The command repeats the step by itself.
        first = next(f for f in told["failures"] if f["check"] == "launches")
        command = shlex.split(first["command"])[1:]
        again = self.mkbench(*command, "-q", "--out", str(self.folder / "again"))
        self.assertEqual(again.returncode, 3, again.stdout + again.stderr)
        self.assertEqual(self.told(self.folder / "again")["failures"][0]["step"], first["step"])

    def test_words_that_are_reset(self):
        told = self.failed("--timeout", "4", "--plant-fault", "words_reset", wanted=7)
        self.assertEqual(told["verdict"], "HANG")
        hang = json.loads((self.out / "hang.json").read_text())["hangs"][0]
        self.assertEqual(hang["finding"]["cause"], "words_reset")
        self.assertIn(hang["line"], told["failures"][0]["reason"])

    def test_a_counter_that_overflows(self):
        result = self.mkbench("soak", "--device", "cpu", "-q", "--timeout", "4", "--minutes", "1", "--context", "256",
                              "--plant-fault", "counter_overflow", "--out", str(self.out))
        self.assertIn(result.returncode, (3, 7), result.stdout + result.stderr)
        self.assertIn("counters from 42949", self.told()["failures"][0]["reason"])


class Found(SoakTest):
    def test_attention_that_stops_at_2048_positions(self):
        self.soak("--model", "synthetic:cut", "--context", "2176", "--plant-fault", "stops_at_2048", "--timeout",
                  "900", "--launches", "100000", "--minutes", "14", "--out", str(self.out), wanted=3, timeout=850)
        self.assertEqual(self.told()["verdict"], "FAIL_TOKEN")


class Documented(SoakTest):
    def test_the_commands_of_the_page(self):
        commands = [line for block in blocks("docs/soak.md") for line in block.splitlines() if line.startswith("mkbench ")]
        self.assertGreaterEqual(len(commands), 4)
        # The environment stands below the command line: where a command says nothing, it is short and on the CPU.
        small = {"MKBENCH_DEVICE": "cpu", "MKBENCH_LAUNCHES": "10", "MKBENCH_TOKENS": "10", "MKBENCH_CONTEXT": "128",
                 "MKBENCH_QUIET": "on"}
        for command in commands:
            with self.subTest(command=command):
                words = shlex.split(command.split("#")[0])[1:]
                result = self.mkbench(*words, env=small)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
