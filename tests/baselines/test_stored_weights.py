"""FP8 with block scales: what the weights stand for, by transformers' own reader too, and what is refused."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

from support.cli_support import ROOT


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Fp8(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "baselines"))
        self.addCleanup(sys.path.remove, str(ROOT / "baselines"))
        import stored_weights
        import torch
        self.stored, self.torch = stored_weights, torch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def random(self, *shape):
        weight = self.torch.randn(shape, generator=self.torch.Generator().manual_seed(1)) * 100
        return weight.to(self.torch.float8_e4m3fn)

    def test_every_value_has_the_scale_of_its_block(self):
        weight, scales = self.random(5, 7), self.torch.arange(1, 13).float().reshape(3, 4) / 3
        found = self.stored.times_scales(weight, scales, [2, 2], "")
        self.assertEqual(found.dtype, self.torch.float32)
        for row in range(5):
            for column in range(7):
                self.assertEqual(found[row, column], weight[row, column].float() * scales[row // 2, column // 2])
        wide = self.stored.times_scales(weight, scales[:1, :3], [5, 3], "")
        self.assertEqual(wide[4, 6], weight[4, 6].float() * scales[0, 2])

    def test_as_transformers_reads_it(self):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize

        weight, scales = self.random(8, 12), self.torch.rand(2, 3) + 0.1
        theirs = Fp8Dequantize(None)._dequantize_one(weight, scales)
        self.assertTrue(self.torch.equal(self.stored.times_scales(weight, scales, [4, 4], "").to(theirs.dtype), theirs))

    def test_a_folder_of_shards(self):
        from safetensors.torch import save_file

        weight, scales = self.random(4, 4), self.torch.full((2, 2), 2.0)
        save_file({"a.weight": weight}, self.folder / "one.safetensors")
        save_file({"a.weight_scale_inv": scales, "norm": self.torch.ones(3)}, self.folder / "two.safetensors")
        save_file({"b": scales}, self.folder / "consolidated.safetensors")  # which transformers does not read
        index = {"weight_map": {"a.weight": "one.safetensors", "a.weight_scale_inv": "two.safetensors", "norm": "two.safetensors"}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        found = self.stored.dequantised(self.folder, [2, 2])
        self.assertEqual(sorted(found), ["a.weight", "norm"])
        self.assertTrue(self.torch.equal(found["a.weight"], 2 * weight.float()))

    def test_what_is_refused(self):
        def block(stated):
            (self.folder / "config.json").write_text(json.dumps({"quantization_config": stated}))
            return self.stored.block_of(self.folder)

        self.assertEqual(block({"quant_method": "fp8", "weight_block_size": [128, 64]}), [128, 64])
        for stated in (None, {}, {"quant_method": "gptq", "weight_block_size": [1, 1]}):
            self.assertIsNone(block(stated))
        for size in (None, [128], [128, 0], [128, "1"], 128):
            with self.assertRaisesRegex(ValueError, "weight_block_size is .*, wanted two sizes of a block") as caught:
                block({"quant_method": "fp8", "weight_block_size": size})
            self.assertEqual(caught.exception.mkbench_kind, "bad_input")
        weight, nan = self.random(4, 4), self.torch.full((2, 2), float("nan"))
        for scales, text in ((None, "tensor 'a': is FP8 and has no '_scale_inv' beside it"),
                             (self.torch.ones(2, 1), r"scales of another shape: found \[2, 1\], wanted \[2, 2\] finite ones for blocks of \[2, 2\]"),
                             (nan, r"scales NaN or Inf: found \[2, 2\], wanted \[2, 2\] finite ones")):
            with self.assertRaisesRegex(ValueError, text) as caught:
                self.stored.times_scales(weight, scales, [2, 2], "tensor 'a'")
            self.assertEqual(caught.exception.mkbench_kind, "bad_input")


if __name__ == "__main__":
    unittest.main()
