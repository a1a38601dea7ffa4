"""scripts/make_checkpoint.py on a small model: training, the HF reference, and the gate's verdict on both."""

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
import unittest
from unittest import mock

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
class NoCard(unittest.TestCase):
    """Where torch sees no card, the CPU is taken only where that was asked for or said."""

    def test_the_device(self):
        import make_checkpoint

        using, no_card = "Using device: ", "--device cuda: no card"
        for asked, seen, problem, wanted in (
                ("cpu", True, "", ("cpu", f"{using}cpu\n", "")), ("auto", True, "", ("cuda", f"{using}cuda\n", "")),
                ("auto", False, "", ("cpu", f"{using}cpu (--device auto: torch sees no GPU)\n", "")),
                ("auto", True, no_card, (6, "", f"{no_card}\n")), ("cuda", False, no_card, (6, "", f"{no_card}\n"))):
            for error in (make_checkpoint.hf.BadInput, RuntimeError):
                use = mock.Mock(side_effect=error(problem.replace(" ", "\n")) if problem else None)
                with self.subTest(asked, problem=problem), mock.patch.object(make_checkpoint.hf, "use_device", use), \
                        mock.patch.object(make_checkpoint.torch.cuda, "is_available", lambda: seen), \
                        contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                    try:
                        found = make_checkpoint.device_of(asked)
                    except SystemExit as end:
                        found = end.code
                    self.assertEqual((found, out.getvalue(), err.getvalue()), wanted)


if __name__ == "__main__":
    unittest.main()
