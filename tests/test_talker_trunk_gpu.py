"""The talker's trunk on a GPU against HF transformers on the CPU (scripts/talker_trunk.py). Exit 77 without a GPU."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import talker_trunk
import torch

PROBE = os.environ["TRUNK_PROBE"]
ENGINES = pathlib.Path(os.environ["ENGINES"])
LAYERS, STEPS = 4, 24


class TrunkOnGpu(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_trunk_"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def make(self, weights, **wrong):
        case = talker_trunk.make_case(LAYERS, weights, STEPS)
        return case, talker_trunk.write_folder(self.scratch / weights, case.shape, case.state, **wrong)

    def run_engine(self, case, folder, engine, inputs, rows=None):
        return talker_trunk.run_engine(PROBE, str(engine), folder, inputs, case.shape, cuda=True, rows=rows)

    def test_engines_follow_hf(self):
        for weights in ("random", "none"):
            case, folder = self.make(weights)
            for engine in (*talker_trunk.ON_CUDA, ENGINES / "plain.so"):
                for entry, inputs in case.entries().items():
                    with self.subTest(weights=weights, engine=engine, entry=entry):
                        run = self.run_engine(case, folder, engine, inputs)
                        self.assertEqual(case.failures(str(engine), run), [])

    def test_wrong_theta_is_found(self):
        case, folder = self.make("random", theta=1e4)
        for engine in talker_trunk.ON_CUDA:
            found = " ".join(case.failures(engine, self.run_engine(case, folder, engine, case.vectors)))
            self.assertIn("logits: error", found, engine)
            self.assertIn("hidden: error", found, engine)

    def test_unequal_rows_and_ring_are_refused(self):
        case, folder = self.make("random")
        rows = torch.arange(STEPS).expand(3, STEPS).clone()
        rows[2, 3] += 1
        with self.assertRaisesRegex(talker_trunk.Refused, "mRoPE positions of step 3: found 3, 3, 4, wanted three equal rows"):
            self.run_engine(case, folder, "plain", case.vectors, rows)
        if torch.cuda.get_device_capability() < (9, 0):
            return  # ring has no code for this card and says so before anything else
        for engine in ("ring", ENGINES / "ring.so"):
            with self.assertRaisesRegex(talker_trunk.Refused, "ring.*: decode_vectors: this engine takes ids and gives logits alone"):
                self.run_engine(case, folder, engine, case.vectors)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no GPU")
        sys.exit(talker_trunk.NO_GPU)
    unittest.main()
