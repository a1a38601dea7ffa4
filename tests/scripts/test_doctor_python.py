"""scripts/doctor_python.py with the torch of the build, and with packages that are not real."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from support import ROOT

SCRIPT = ROOT / "scripts" / "doctor_python.py"


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_python_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def package(self, name, init):
        (self.folder / f"{name}.py").write_text(textwrap.dedent(init))

    def run_script(self, *args, isolated=False):
        """Exit status, facts, and the stages in order. isolated: without the packages of this Python."""
        command = [sys.executable, *(["-S"] if isolated else []), str(SCRIPT), *args]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(self.folder)}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=200, check=False)
        facts, stages = {}, []
        for line in done.stdout.splitlines():
            fact = json.loads(line)
            stages += [fact.pop("stage")] if "stage" in fact else []
            facts.update(fact)
        self.error = done.stderr
        return done.returncode, facts, stages


class RealTorch(ScriptTest):
    def test_architectures_without_a_driver(self):
        status, facts, stages = self.run_script("--architectures")
        self.assertEqual((status, stages), (0, ["torch", "end"]), self.error)
        self.assertRegex(facts["torch"]["architectures"], r"^sm_\d+( (sm|compute)_\d+[af]?)*$")
        self.assertNotIn("matmul", facts["torch"])

    def test_everything(self):
        self.package("transformers", init="__version__ = '5.0'")
        status, facts, stages = self.run_script()
        self.assertEqual((status, stages), (0, ["torch", "transformers", "end"]), self.error)
        self.assertEqual(facts["python"]["executable"], sys.executable)
        matmul = facts["torch"]["matmul"]
        self.assertTrue(matmul["ok"], matmul)
        self.assertEqual(matmul["got"], matmul["wanted"])
        self.assertNotEqual(matmul["wanted"], 0)
        self.assertEqual(matmul["device"], "cuda:0" if facts["torch"]["available"] else "cpu")
        self.assertEqual(facts["transformers"], {"version": "5.0"})


class FakePackages(ScriptTest):
    def test_nothing_installed(self):
        status, facts, _ = self.run_script(isolated=True)
        self.assertEqual(status, 0, self.error)
        for name in ("torch", "transformers"):
            self.assertTrue(facts[name]["missing"], facts)

    def test_broken_packages_are_errors_and_not_missing(self):
        self.package("torch", init="import nothing_of_this_name")
        self.package("transformers", init="raise ImportError('libx.so.1: cannot open\\nshared object file')")
        self.package("bitsandbytes", init="raise SystemExit(3)")
        status, facts, stages = self.run_script(isolated=True)
        self.assertEqual((status, stages[-1]), (0, "end"), self.error)
        self.assertEqual(facts["torch"], {"error": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
                                          "missing": False})
        self.assertEqual(facts["transformers"]["error"], "ImportError: libx.so.1: cannot open shared object file")
        self.package("transformers", init="raise SystemExit(3)")
        self.assertEqual(self.run_script(isolated=True)[1]["transformers"]["error"], "SystemExit: 3")

    def test_a_package_that_kills_or_hangs_leaves_what_was_told(self):
        self.package("torch", init="import os\nos.kill(os.getpid(), 11)")
        status, facts, stages = self.run_script(isolated=True)
        self.assertEqual((status, stages, list(facts)), (-11, ["torch"], ["python"]))
        self.package("torch", init="import time\ntime.sleep(60)")
        status, _, stages = self.run_script("--seconds", "1", isolated=True)
        self.assertEqual((status, stages), (-14, ["torch"]))

    def test_a_driver_that_is_too_old(self):
        """torch's own text is told; what it would do on a card is done on the CPU."""
        self.package("torch", init="""
            __version__ = "2.9.1+cu128"
            class version: cuda = "12.8"
            class cuda:
                @staticmethod
                def init(): raise RuntimeError("The NVIDIA driver on your system is too old")
            class _C:
                @staticmethod
                def _cuda_getArchFlags(): return "sm_90 sm_120"
        """)
        _, facts, _ = self.run_script(isolated=True)
        torch = facts["torch"]
        self.assertEqual(torch["init_error"], "RuntimeError: The NVIDIA driver on your system is too old")
        self.assertEqual((torch["architectures"], torch["available"]), ("sm_90 sm_120", False))
        self.assertIn("error", torch["matmul"])  # this torch has no tensors


if __name__ == "__main__":
    unittest.main()
