"""Quantised weights: the values that they stand for, as the libraries that store them read them, and what is refused."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

from support.cli_support import ROOT


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class StoredWeights(unittest.TestCase):
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

    def test_words_of_four_and_eight_bits(self):
        # Packed by compressed-tensors 0.20.1: a row of 24 values in groups of eight.
        words = self.torch.tensor([[528188840, -1129354648, -2018765111]], dtype=self.torch.int32)
        wanted = [0, 2, -3, 0, 3, -1, 7, -7, 0, -2, 2, -2, 7, 2, 4, 3, 1, 4, -2, -7, 4, 2, -1, 0]
        self.assertEqual(self.stored.unpacked(words, 24, "").tolist(), [wanted])
        self.assertEqual(self.stored.unpacked(words, 17, "").tolist(), [wanted[:17]])
        self.assertEqual(self.stored.unpacked(words[:, :2], 7, "").tolist(), [[40, 5, -5, -97, -24, -22, 47]])  # its bytes less 128
        scales = self.torch.tensor([[1.0, 10.0, 100.0]])
        found = self.stored.times_scales(self.stored.unpacked(words, 24, ""), scales, None, "")
        self.assertEqual(found.tolist(), [[w * 10.0 ** (i // 8) for i, w in enumerate(wanted)]])

    def test_a_folder_of_compressed_tensors(self):
        from safetensors.torch import save_file

        words = self.torch.tensor([[-0x77777778 + 1], [-0x77777778 + 2]], dtype=self.torch.int32)  # 1 and 2 in the first column
        eight = self.torch.tensor([[1, -2, 3]], dtype=self.torch.int8)
        tensors = {"a.weight_packed": words, "a.weight_scale": self.torch.tensor([[2.0], [3.0]]), "a.weight_shape": self.torch.tensor([2, 5]),
                   "b.weight": eight, "b.weight_scale": self.torch.tensor([0.5]), "norm": self.torch.ones(2)}
        save_file(tensors, self.folder / "model.safetensors")
        found = self.stored.dequantised(self.folder, None)
        self.assertEqual({name: tensor.tolist() for name, tensor in found.items()},
                         {"a.weight": [[2, 0, 0, 0, 0], [6, 0, 0, 0, 0]], "b.weight": [[0.5, -1, 1.5]], "norm": [1, 1]})
        for name, text in (("weight_zero_point", "is a zero point, which is not read yet"), ("weight_g_idx", "is columns in another order")):
            save_file(tensors | {f"a.{name}": words.clone()}, self.folder / "model.safetensors")
            with self.assertRaisesRegex(ValueError, f"a.{name}': {text}"):
                self.stored.dequantised(self.folder, None)
        tensors.pop("a.weight_shape")
        save_file(tensors, self.folder / "model.safetensors")
        with self.assertRaisesRegex(ValueError, "1 words hold 0 columns .weight_shape., wanted 4 or 8 bits a value"):
            self.stored.dequantised(self.folder, None)

    def test_what_is_refused(self):
        def block(stated):
            (self.folder / "config.json").write_text(json.dumps({"quantization_config": stated}))
            return self.stored.form_of(self.folder)

        self.assertEqual(block({"quant_method": "fp8", "weight_block_size": [128, 64]}), ("fp8", [128, 64]))
        self.assertEqual(block({"quant_method": "compressed-tensors", "format": "int-quantized"}), ("int-quantized", None))
        for stated in (None, {}, {"quant_method": "gptq", "weight_block_size": [1, 1]}):
            self.assertIsNone(block(stated))
        for size in (None, [128], [128, 0], [128, "1"], 128):
            with self.assertRaisesRegex(ValueError, "weight_block_size is .*, wanted two sizes of a block") as caught:
                block({"quant_method": "fp8", "weight_block_size": size})
            self.assertEqual(caught.exception.mkbench_kind, "bad_input")
        weight, nan = self.random(4, 4), self.torch.full((2, 2), float("nan"))
        for scales, text in ((None, "tensor 'a': is quantised and has no scales beside it"),
                             (self.torch.ones(2, 1), r"scales of another shape: found \[2, 1\], wanted \[2, 2\] finite ones for blocks of \[2, 2\]"),
                             (nan, r"scales NaN or Inf: found \[2, 2\], wanted \[2, 2\] finite ones")):
            with self.assertRaisesRegex(ValueError, text) as caught:
                self.stored.times_scales(weight, scales, [2, 2], "tensor 'a'")
            self.assertEqual(caught.exception.mkbench_kind, "bad_input")


if __name__ == "__main__":
    unittest.main()
