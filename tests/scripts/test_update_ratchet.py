"""scripts/update_ratchet.py: takes passing reports, never raises a value without a reason."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

SCRIPT = ROOT / "scripts" / "update_ratchet.py"
REPORT = {
    "schema": {"id": "mkbench.report", "version": "1.2.0"},
    "cases": [{
        "name": "synthetic parity", "model": {"name": "synthetic:deep"},
        "engines": [
            {"role": "baseline", "resolved_name": "eager", "device": "cuda:0 GPU X", "verdict": "PASS",
             "parity": {"verdict": "PASS", "checks": [], "reference_sha256": "a" * 64}},
            {"role": "candidate", "resolved_name": "ring", "device": "cuda:0 GPU X", "verdict": "PASS",
             "parity": {"verdict": "PASS", "reference_sha256": "a" * 64, "repeats_sha256": "b" * 64, "checks": [
                 {"name": "r_rms", "value": 0.06512}, {"name": "r_step", "value": 0.1}, {"name": "r_inf", "value": 0.05},
                 {"name": "r_kl", "value": 0.002}, {"name": "strict", "value": None}]}}]}]}


def ratio(name, value):
    """A change of an engine's report: that ratio has this value."""
    def change(engine):
        next(c for c in engine["parity"]["checks"] if c["name"] == name)["value"] = value
    return change


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
                  "reference_sha256": "a" * 64, "r_rms": 0.06512, "r_step": 0.1, "r_inf": 0.05, "r_kl": 0.002,
                  "repeats_sha256": "b" * 64}
        self.assertEqual(self.entries(), [wanted])
        self.assertIn("nothing changes", self.update().stdout)

    def test_lower_replaces_and_higher_needs_a_reason(self):
        self.update()
        for name in ("r_rms", "r_step", "r_inf", "r_kl"):
            lower = self.update(ratio(name, 0.001))
            self.assertEqual(lower.returncode, 0, lower.stderr)
            self.assertEqual(self.entries()[0][name], 0.001)
            higher = self.update(ratio(name, 0.0011))
            self.assertEqual(higher.returncode, 2)
            self.assertIn(f"{name} 0.0011 against the committed 0.001; --reason", higher.stderr)
            self.assertEqual(self.entries()[0][name], 0.001)
            self.assertEqual(self.update(None, "--reason", "start again").returncode, 0)
        self.assertEqual((self.entries()[0]["r_rms"], self.entries()[0]["reason"]), (0.06512, "start again"))

    def test_other_bits_need_a_reason(self):
        self.update()
        changed = lambda e: e["parity"].update(repeats_sha256="c" * 64)
        refused = self.update(changed)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("repeats_sha256", refused.stderr)
        self.assertEqual(self.update(changed, "--reason", "another order of sums").returncode, 0)
        self.assertEqual((self.entries()[0]["repeats_sha256"], self.entries()[0]["reason"]), ("c" * 64, "another order of sums"))
        # A run that judged no repeats leaves the bits as they are.
        self.assertEqual(self.update(lambda e: e["parity"].update(repeats_sha256="")).returncode, 0)
        self.assertEqual(self.entries()[0]["repeats_sha256"], "c" * 64)

    def test_what_has_not_passed_is_refused(self):
        for change in (lambda e: e.update(verdict="FAIL_FIDELITY"), lambda e: e.update(verdict="PASS_LIVE"),
                       lambda e: e["parity"].update(verdict="FAIL_TOKEN"), ratio("r_kl", None),
                       lambda e: e["parity"].update(reference_sha256=""), lambda e: e.update(parity=None),
                       lambda e: e.update(role="baseline"), ratio("r_step", 0.0),
                       lambda e: e["parity"].update(precision="lossy")):
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
