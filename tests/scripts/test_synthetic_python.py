"""The Python generator of the analytic checkpoint: the committed bytes and continuations, which C++ makes too."""

import dataclasses
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("scripts", "dev"):
    sys.path.insert(0, str(ROOT / folder))

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

    def test_cuts_of_other_shapes_have_the_committed_bytes(self):
        for name in ("qwen3-tts-talker", "qwen3-1.7b"):
            cut = dataclasses.replace(self.synthetic.parse(f"{name}:short")[0], layers=4)
            known = self.committed["sha256_of_cuts_of_4_layers"][f"{name}:short"]
            self.assertEqual(self.synthetic.sha256("short", cut), known, name)

    def test_unknown_shapes_and_short_cuts_are_refused(self):
        with self.assertRaisesRegex(ValueError, "qwen3-9b:short.*qwen3-8b"):
            self.synthetic.parse("qwen3-9b:short")
        with self.assertRaisesRegex(ValueError, "3 layers, wanted over 3"):
            self.synthetic.lags("short", dataclasses.replace(self.synthetic.SHAPE, layers=3))

    def test_one_flipped_plant_changes_the_hash(self):
        tensor = self.synthetic.norm(2)
        bits = tensor.bits()
        tensor.add(0, 5, 1.25)
        changed = np.nonzero(bits != tensor.bits())[1]
        self.assertEqual(changed.tolist(), [5])

    def test_bytes_do_not_depend_on_chunks_and_threads(self):
        shape = self.synthetic.SHAPE
        tensors = [self.synthetic.Codewords(1, dataclasses.replace(shape, vocab=3072)),
                   self.synthetic.mlp(shape, 8, 3, False, np.ones(shape.hidden), 1.0)[0]]
        for tensor in tensors:
            in_threads = tensor.bits()
            self.assertLess(self.synthetic.CHUNK_ELEMENTS, in_threads.size)
            np.testing.assert_array_equal(in_threads, tensor.chunk(0, tensor.rows))

    def test_margins_keep_an_entry_for_each_device(self):
        import synthetic_margins

        entry = {"shape": "qwen3-4b", "layers": 36, "lagset": "short", "device": "CPU", "planted": {"5": 1}, "steps": 96,
                 "fp32_equal": 96, "bf16_equal": 96, "distinct": 96, "margin": 11.0, "pairwise_error": 0.1}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "margins.json"
            for change in ({}, {"device": "Card"}, {"margin": 12.0}, {"layers": 4}):
                synthetic_margins.keep(path, entry | change)
            kept = json.loads(path.read_text())
            self.assertEqual([(e["layers"], e["device"], e["margin"]) for e in kept],
                             [(4, "CPU", 11.0), (36, "CPU", 12.0), (36, "Card", 11.0)])
            synthetic_margins.render(path)
            self.assertIn("| qwen3-4b | 36 | short | Card | 5:1 | 96 of 96 |", (path.parent / "README.md").read_text())

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
