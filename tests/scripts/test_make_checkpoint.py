"""scripts/make_checkpoint.py on a small model: training, the HF reference, and the gate's verdict on both."""

import importlib.util
import json
import subprocess
import sys
import unittest

from support.cli_support import BINARY, ROOT, CliTest, environment

SCRIPT = ROOT / "scripts" / "make_checkpoint.py"
HAS_HF = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors"))


@unittest.skipUnless(HAS_HF, "this Python has no HF transformers")
class MakeCheckpoint(CliTest):
    def test_text_to_verdict(self):
        folder = self.folder / "Learned"
        command = [sys.executable, str(SCRIPT), str(folder), "--tiny", "--device", "cpu", "--run", BINARY, "parity",
                   "--engine", "host-twin", "--device", "cpu", "--out", str(self.out)]
        done = subprocess.run(command, cwd=self.folder, env=environment(), timeout=200, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("320 decided steps", done.stdout)
        self.assertTrue(done.stdout.startswith("Using device: cpu\n"), done.stdout[:200])
        self.assertIn("--require-reference", done.stdout)
        case = self.report()["cases"][0]
        self.assertEqual(case["verdict"], "PASS", "judged live, or not at all")
        for name in ("eager", "host-twin"):
            parity = self.engine(self.report(), name)["parity"]
            self.assertEqual((parity["strict_matched"], parity["strict_steps"], parity["decided_steps"]), (320,) * 3)

        reference = folder / "reference" / "learned" / "reference.json"
        document = json.loads(reference.read_text())
        self.assertEqual(document["capture"]["batch"], 8)
        self.assertTrue(document["capture"]["command"].startswith("python scripts/make_checkpoint.py "))
        self.swapped(folder, reference)

    def swapped(self, folder, reference):
        """A reference that was changed after its capture is refused, and the folder is not made twice."""
        before = reference.read_text()
        reference.write_text(before.replace('"batch":8', '"batch":9'))
        again = self.folder / "again"
        result = self.mkbench("--device", "cpu", "--model", str(folder), "--reference", str(folder / "reference"),
                              "--no-plot", "--out", str(again))
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stderr, r"sha256 is [0-9a-f]{64}, .*manifest.json says '[0-9a-f]{64}'")
        refused = subprocess.run([sys.executable, str(SCRIPT), str(folder), "--tiny"], env=environment(), check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("not empty", refused.stdout)


@unittest.skipUnless(HAS_HF, "this Python has no HF transformers")
class NoCard(CliTest):
    """Where torch sees no card, the CPU is taken only where that was asked for or said."""

    def make(self, *args):
        return subprocess.run([sys.executable, str(SCRIPT), str(self.folder / "Learned"), "--tiny", "--max-steps", "1", *args],
                              env=environment(CUDA_VISIBLE_DEVICES=""), check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)

    def test_cuda_never_falls_back(self):
        done = self.make("--device", "cuda")
        self.assertEqual((done.returncode, done.stdout), (6, ""))
        self.assertRegex(done.stderr, r"\A--device cuda: no GPU can be used: \S.*\n\Z")
        self.assertFalse((self.folder / "Learned").exists())

    def test_auto_says_why(self):
        done = self.make()
        self.assertEqual(done.returncode, 1, done.stderr)  # one step is not enough
        self.assertRegex(done.stdout, r"\AUsing device: cpu \(--device auto; no GPU can be used: \S.*\)\n")


if __name__ == "__main__":
    unittest.main()
