"""scripts/update_ratchet.py: takes passing reports, never raises a value without a reason."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "update_ratchet.py"
REPORT = {
    "schema": {"id": "mkbench.report", "version": "1.2.0"},
    "cases": [{
        "name": "synthetic parity", "model": {"name": "synthetic:deep"},
        "engines": [
            {"role": "baseline", "resolved_name": "eager", "device": "cuda:0 GPU X", "verdict": "PASS",
             "parity": {"verdict": "PASS", "r_rms": 1.0, "reference_sha256": "a" * 64}},
            {"role": "candidate", "resolved_name": "ring", "device": "cuda:0 GPU X", "verdict": "PASS",
             "parity": {"verdict": "PASS", "r_rms": 0.06512, "reference_sha256": "a" * 64}}]}]}


class Ratchet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ratchet = self.folder / "ratchet.json"

    def update(self, change=None, *args):
        report = copy.deepcopy(REPORT)
        if change:
            change(report["cases"][0]["engines"][1])
        (self.folder / "report.json").write_text(json.dumps(report))
        return subprocess.run([sys.executable, SCRIPT, self.folder / "report.json", "--ratchet", self.ratchet, *args],
                              capture_output=True, text=True, check=False)

    def entries(self):
        return json.loads(self.ratchet.read_text())["entries"]

    def test_a_passing_candidate_is_written_once(self):
        self.assertEqual(self.update().returncode, 0)
        wanted = {"engine": "ring", "card": "GPU X", "model": "synthetic", "lagset": "short",
                  "reference_sha256": "a" * 64, "r_rms": 0.0651}
        self.assertEqual(self.entries(), [wanted])
        self.assertIn("nothing changes", self.update().stdout)

    def test_lower_replaces_and_higher_needs_a_reason(self):
        self.update()
        self.assertEqual(self.update(lambda e: e["parity"].update(r_rms=0.05)).returncode, 0)
        self.assertEqual(self.entries()[0]["r_rms"], 0.05)
        higher = self.update(lambda e: e["parity"].update(r_rms=0.0502))
        self.assertEqual(higher.returncode, 2)
        self.assertIn("--reason", higher.stderr)
        self.assertEqual(self.entries()[0]["r_rms"], 0.05)
        self.assertEqual(self.update(lambda e: e["parity"].update(r_rms=0.0502), "--reason", "fp16 softmax").returncode, 0)
        self.assertEqual((self.entries()[0]["r_rms"], self.entries()[0]["reason"]), (0.0502, "fp16 softmax"))

    def test_what_has_not_passed_is_refused(self):
        for change in (lambda e: e.update(verdict="FAIL_FIDELITY"), lambda e: e.update(verdict="PASS_LIVE"),
                       lambda e: e["parity"].update(verdict="FAIL_TOKEN"), lambda e: e["parity"].update(r_rms=None),
                       lambda e: e["parity"].update(reference_sha256=""), lambda e: e.update(parity=None),
                       lambda e: e.update(role="baseline"), lambda e: e["parity"].update(r_rms=0.0)):
            self.assertEqual(self.update(change).returncode, 2)
            self.assertFalse(self.ratchet.exists())

    def test_the_committed_file_is_one(self):
        committed = json.loads((ROOT / "reports" / "ratchet.json").read_text())
        self.assertEqual(committed["schema"], "mkbench.ratchet")
        keys = [tuple(e[k] for k in ("engine", "card", "model", "lagset", "reference_sha256"))
                for e in committed["entries"]]
        self.assertEqual(len(keys), len(set(keys)))
        for entry in committed["entries"]:
            folder = ROOT / "references" / "data" / entry["model"]
            self.assertTrue(folder.is_dir(), entry)


if __name__ == "__main__":
    unittest.main()
