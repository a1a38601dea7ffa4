"""The Python generator of the analytic checkpoint: the committed bytes and continuations, which C++ makes too."""

import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

try:
    import numpy as np
except ImportError:
    np = None


@unittest.skipIf(np is None, "this Python has no numpy")
class SyntheticPython(unittest.TestCase):
    def setUp(self):
        import synthetic_checkpoint

        self.synthetic = synthetic_checkpoint
        self.committed = json.loads((ROOT / "references/data/synthetic/hashes.json").read_text())

    def test_short_has_the_committed_bytes(self):
        self.assertEqual(self.synthetic.sha256("short"), self.committed["sha256"]["short"])

    def test_one_flipped_plant_changes_the_hash(self):
        tensor = self.synthetic.norm(2)
        bits = tensor.bits()
        tensor.add(0, 5, 1.25)
        changed = np.nonzero(bits != tensor.bits())[1]
        self.assertEqual(changed.tolist(), [5])

    def test_continuations(self):
        self.assertEqual(set(self.committed["continuations"]), set(self.synthetic.LAGS))
        for lagset, known in self.committed["continuations"].items():
            prompt = self.synthetic.prompt(known["depth"], known["seed"])
            ids = self.synthetic.continuation(prompt, lagset, len(known["ids"]))
            self.assertEqual(ids, known["ids"], lagset)

    def test_a_prompt_below_the_lags_is_refused(self):
        with self.assertRaisesRegex(ValueError, "more than 11 ids"):
            self.synthetic.continuation(self.synthetic.prompt(10, 1), "short", 1)


if __name__ == "__main__":
    unittest.main()
