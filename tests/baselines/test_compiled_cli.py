"""The engine `compiled` through the real binary, and the script that makes its package."""

import ctypes
import fcntl
import os
import pathlib
import subprocess
import sys
import time

from support.cli_support import ROOT, CliTest

SCRIPT = ROOT / "scripts" / "compile_step.py"
SHAPE = ("--device", "cpu", "--eps", "1e-6", "--layers", "1", "--hidden", "8", "--intermediate", "8", "--heads", "1",
         "--kv-heads", "1", "--head-dim", "8", "--vocab", "8")


class Judged(CliTest):
    def test_compiled_is_a_yardstick_that_passes(self):
        done = self.bench("--compare", "eager,compiled", "--reference", self.short_reference(), timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = self.report()
        engine = self.engine(report, "compiled")
        self.assertEqual((engine["role"], engine["verdict"]), ("baseline", "PASS"), engine["reasons"])
        self.assertEqual(len([s for s in engine["samples"] if s["valid"]]), 2)
        self.assertIn("allow_tf32=0", engine["settings"])


class Skipped(CliTest):
    def test_without_a_python_compiled_is_skipped_and_says_why(self):
        done = self.bench("--compare", "eager,compiled", "--reference", self.short_reference(),
                          env_more={"MKBENCH_PYTHON": "/nowhere/python3", "XDG_CACHE_HOME": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = self.report()
        engine = self.engine(report, "compiled")
        why = ("compiled: it cannot be built here: cannot run /nowhere/python3 (MKBENCH_PYTHON): "
               "No such file or directory")
        self.assertEqual((engine["verdict"], engine["reasons"]), ("SKIPPED", [why]))
        self.assertIn(f"- compiled: SKIPPED: {why}\n", done.stdout)
        self.assertEqual(self.engine(report, "host-twin")["verdict"], "PASS")


class Script(CliTest):
    def script(self, *arguments, **env):
        return subprocess.Popen([sys.executable, str(SCRIPT), *SHAPE, *arguments], env=os.environ | env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def missing(self, *arguments, **env):
        """The last line of a run that says what is missing, and leaves no file but the lock."""
        with self.script("--out", str(self.folder / "step.pt2"), *arguments, **env) as process:
            _, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 3, stderr)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["step.lock"])
        return stderr.strip().splitlines()[-1]

    def test_what_is_missing_is_named(self):
        self.assertRegex(self.missing("--torch", "1.0.0", "--torch-cuda", "9.9"),
                         r"^compile_step.py: torch of .*: found .* for CUDA '.*', wanted 1\.0\.0 for CUDA '9\.9'")
        import torch
        version = ("--torch", torch.__version__.split("+")[0], "--torch-cuda", torch.version.cuda or "")
        self.assertRegex(self.missing(*version, CXX="/nowhere/g++"),
                         r"^compile_step.py: found no C\+\+ compiler, wanted one of .*/nowhere/g\+\+")

    def test_what_is_required(self):
        done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("required: --out, --device, --torch, --eps, --layers, --hidden, --intermediate, --heads, --kv-heads, "
                      "--head-dim, --vocab\n", done.stderr)

    def test_a_card_needs_a_driver(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.assertRegex(self.missing("--torch", "0", "--device", "cuda"),
                             "^compile_step.py: found no NVIDIA driver, wanted one for --device cuda: libcuda.so.1: ")

    def test_the_second_of_two_waits_for_the_first(self):
        out = self.folder / "step.pt2"
        with open(out.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.script("--out", str(out), "--torch", "0") as second:
                time.sleep(1)
                self.assertIsNone(second.poll())
                pathlib.Path(out).write_text("the first one's")
                fcntl.flock(lock, fcntl.LOCK_UN)
                _, stderr = second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0, stderr)
        self.assertEqual(out.read_text(), "the first one's")


if __name__ == "__main__":
    import unittest

    unittest.main()
