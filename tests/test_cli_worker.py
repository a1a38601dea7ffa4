"""Hosts that hang, crash or are killed, Ctrl-C, and faults planted in the engine: each gives its verdict and leaves a
complete report on disk."""

import re
import signal
import subprocess
import time
import unittest

from cli_support import BINARY, CliTest, environment, send_interrupt


class PlantedFaults(CliTest):
    def test_each_fails_the_gate(self):
        references = self.short_reference(prompts=("corpus-17", "corpus-64", "other-2"))
        for fault in ("rope_theta", "swap_gate_up", "cache_length"):
            with self.subTest(fault=fault):
                self.out = self.folder / fault
                result = self.bench("--plant-fault", fault, "--blocks", "1", "--reference", references)
                self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                report = self.report()
                kernel = self.engine(report, "host-twin")
                self.assertIn(kernel["verdict"], ("FAIL_TOKEN", "FAIL_FIDELITY"))
                self.assertIsNone(kernel["ms_per_tok"])
                self.assertEqual(kernel["samples"], [])
                self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")
                self.assertIn("Parity table of host-twin", result.stdout)
                self.assertIn("ref_text", result.stdout)


class Selftest(CliTest):
    """Lanes run in a host: their results come back, and a crash fails its own lane only."""

    def test_there_is_only_faults(self):
        result = self.mkbench("selftest")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("--faults", result.stderr)

    def test_lanes_of_some_rows(self):
        result = self.mkbench("selftest", "--faults", "--device", "cpu", "--rows", "27,52,c8")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "faults seen 4 of 4, controls passed 4 of 4")
        self.assertIn("weights", result.stdout)

    def test_a_row_that_is_not_there(self):
        result = self.mkbench("selftest", "--faults", "--device", "cpu", "--rows", "no-such-row")
        self.assertEqual(result.returncode, 2, result.stdout)


class BadWorkers(CliTest):
    def ended(self, mode, *args):
        result = self.bench("--test-worker", mode, "--reference", self.short_reference(), *args)
        return result, self.report()

    def test_crash(self):
        result, report = self.ended("crash:host-twin")
        self.assertEqual(result.returncode, 1, result.stderr)
        kernel = self.engine(report, "host-twin")
        self.assertEqual(kernel["verdict"], "RUNTIME_ERROR")
        self.assertIn("signal 11", kernel["reasons"][0])
        self.assertIn("host-twin", kernel["reasons"][0])
        self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")

    def test_killed(self):
        result, report = self.ended("kill:eager")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("signal 9", self.engine(report, "eager")["reasons"][0])

    def test_out_of_memory(self):
        result, report = self.ended("memory:host-twin")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertEqual(self.engine(report, "host-twin")["verdict"], "ENV_UNFIT")
        self.assertEqual(len(self.engine(report, "eager")["samples"]), 2)

    def test_hang(self):
        result, report = self.ended("hang:host-twin", "--timeout", "12")
        self.assertEqual(result.returncode, 7, result.stderr)
        kernel = self.engine(report, "host-twin")
        self.assertEqual(kernel["verdict"], "HANG", kernel["reasons"])
        self.assertEqual(len(kernel["samples"]), 1)
        self.assertIsNone(kernel["ms_per_tok"])


class Interrupts(CliTest):
    def start(self, *args):
        return subprocess.Popen(
            [BINARY, "--device", "cpu", "--model", "tiny,tiny-untied", "-n", "8", "--blocks", "1000", "--no-plot",
             "--out", str(self.out), "--reference", self.short_reference(), "-v", *args],
            cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, process, text):
        """Reads stderr until a line holds `text`."""
        lines = []
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return
        self.fail(f"'{text}' did not come: {lines}")

    def test_control_c_leaves_a_partial_report(self):
        process = self.start()
        self.addCleanup(process.kill)
        self.wait_for(process, "timing")
        send_interrupt(process)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        report = self.report()
        self.assertTrue(report["verdict"]["interrupted"])
        self.assertEqual(report["verdict"]["status"], "INTERRUPTED")
        self.assertEqual(report["verdict"]["exit_code"], 130)
        self.assertEqual(len(report["cases"]), 1)

    def test_second_control_c_kills_at_once(self):
        process = self.start("--test-worker", "hang:eager")
        self.addCleanup(process.kill)
        self.wait_for(process, "timing")
        time.sleep(1)  # the second block hangs
        send_interrupt(process)
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "the first one lets the running sample end")
        send_interrupt(process)
        begin = time.monotonic()
        _, stderr = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertTrue(self.report()["verdict"]["interrupted"])

    def test_worker_dies_with_its_parent(self):
        process = self.start("--test-worker", "hang:eager")
        self.wait_for(process, "timing")
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], stdout=subprocess.PIPE, text=True,
                                  check=False).stdout.split()
        self.assertEqual(len(children), 1)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        for _ in range(100):
            if not alive(int(children[0])):
                return
            time.sleep(0.1)
        self.fail("the worker outlived its parent")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return re.sub(r"\(.*\)", "", file.read()).split()[1] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
