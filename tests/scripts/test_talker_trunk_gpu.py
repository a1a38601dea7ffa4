"""The talker's trunk on a GPU against HF transformers on the CPU (scripts/talker_trunk.py). Exit 77 without a GPU."""

import sys
import unittest

import torch
from test_talker_trunk import ENGINES, STEPS, TrunkTest, talker_trunk


class OnGpu(TrunkTest):
    cuda = True

    def test_engines_follow_hf(self):
        self.check_engines(*talker_trunk.ON_CUDA, ENGINES / "plain.so")


class RandomWeights(OnGpu, unittest.TestCase):
    weights = "random"

    def test_wrong_theta_is_found(self):
        self.check_wrong_theta(*talker_trunk.ON_CUDA)

    def test_unequal_rows_and_ring_are_refused(self):
        rows = torch.arange(STEPS).expand(3, STEPS).clone()
        rows[2, 3] += 1
        with self.assertRaisesRegex(talker_trunk.Refused, "mRoPE positions of step 3: found 3, 3, 4, wanted three equal rows"):
            self.run_engine("plain", rows=rows)
        if torch.cuda.get_device_capability() < (9, 0):
            return  # ring has no code for this card and says so before anything else
        for engine in ("ring", ENGINES / "ring.so"):
            with self.assertRaisesRegex(talker_trunk.Refused, "ring.*: decode_vectors: this engine takes ids and gives logits alone"):
                self.run_engine(engine)


class AnalyticWeights(OnGpu, unittest.TestCase):
    weights = "none"


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no GPU")
        sys.exit(talker_trunk.NO_GPU)
    unittest.main()
