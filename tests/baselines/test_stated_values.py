"""What an engine says that its weights stand for: how the judging runs take it, and what cannot be right."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest

from support.cli_support import ROOT


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class StatedValues(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "baselines"))
        self.addCleanup(sys.path.remove, str(ROOT / "baselines"))
        import stated_values
        import torch
        self.module, self.torch = stated_values, torch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "values"

    def model(self, tensors, **config):
        from safetensors.torch import save_file

        save_file(tensors, self.folder / "model.safetensors")
        (self.folder / "config.json").write_text(json.dumps(config))

    def state(self, storage=None, **weights):
        index, offset = "", 0
        with self.file.open("wb") as file:
            for name, value in weights.items():
                entry = {"name": name, "shape": list(value.shape), "offset": offset} | ({"storage": storage} if storage else {})
                index += json.dumps(entry) + "\n"
                offset += file.write(value.float().numpy().tobytes())
        pathlib.Path(f"{self.file}.index").write_text(index)

    def config(self, tied=True):
        text = types.SimpleNamespace(tie_word_embeddings=tied)
        return types.SimpleNamespace(tie_word_embeddings=tied, get_text_config=lambda: text)

    def judged(self, name):
        return self.module.stated_values(self.folder, self.file, name)

    def asked(self):
        return [weight["name"] for weight in self.module.stated_values(self.folder, "", "")["weights"]]

    def test_values_stand_in_their_weights_places(self):
        torch, one = self.torch, self.torch.arange(6.0).reshape(2, 3)
        self.model({"a.weight": one.to(torch.bfloat16), "norm.weight": torch.ones(3), "b.weight": one + 1})
        self.state(**{"b.weight": one * 3, "a.weight": one.T})
        found = self.module.weights_by(self.folder, self.file, self.config())
        self.assertEqual(sorted(found), ["a.weight", "b.weight", "norm.weight"])
        self.assertEqual(found["b.weight"].tolist(), (one * 3).tolist())
        self.assertEqual(found["a.weight"].tolist(), one.T.tolist())
        self.assertEqual(found["norm.weight"].tolist(), [1, 1, 1])

    def test_a_head_that_differs_from_the_embedding_is_not_tied(self):
        torch, table = self.torch, self.torch.arange(6.0).reshape(3, 2)
        self.model({"model.embed_tokens.weight": table.to(torch.bfloat16)})
        self.assertEqual(self.module.stated_values(self.folder, "", ""), {"weights": [
            {"name": "model.embed_tokens.weight", "shape": [3, 2]}, {"name": "lm_head.weight", "shape": [3, 2]}]})
        self.check_ties(table)
        # Some folders store the head of a tied model once more.
        self.model({"model.embed_tokens.weight": table.to(torch.bfloat16), "lm_head.weight": table.to(torch.bfloat16)})
        self.assertEqual(self.asked(), ["lm_head.weight", "model.embed_tokens.weight"])
        self.check_ties(table)

    def check_ties(self, table):
        for head, embedding, tied in ((table + 1, None, False), (table, None, True), (table + 1, table + 1, True), (None, table + 1, True),
                                      (table, table + 1, False)):
            said = {"lm_head.weight": head, "model.embed_tokens.weight": embedding}
            self.state(**{name: value for name, value in said.items() if value is not None})
            config = self.config()
            found = self.module.weights_by(self.folder, self.file, config)
            self.assertEqual((config.tie_word_embeddings, config.get_text_config().tie_word_embeddings), (tied, tied))
            self.assertEqual("lm_head.weight" in found, not tied)
            if not tied:
                self.assertEqual(found["lm_head.weight"].tolist(), head.tolist())
            self.assertEqual(found["model.embed_tokens.weight"].tolist(), (table if embedding is None else embedding).tolist())

    def test_a_model_with_a_head_of_its_own(self):
        table = self.torch.ones(3, 2)
        self.model({"model.embed_tokens.weight": table, "lm_head.weight": table * 2, "norm.weight": table[0].clone()})
        self.assertEqual(self.asked(), ["lm_head.weight", "model.embed_tokens.weight"])
        self.state(**{"model.embed_tokens.weight": table * 3})
        for tied in (True, False):  # whatever the config states, transformers keeps two that differ apart
            found = self.module.weights_by(self.folder, self.file, self.config(tied))
            self.assertEqual([found[name][0, 0].item() for name in ("lm_head.weight", "model.embed_tokens.weight")], [2, 3])
        self.model({"model.embed_tokens.weight": table, "lm_head.weight": table.clone()})
        found = self.module.weights_by(self.folder, self.file, self.config(False))
        self.assertEqual([found[name][0, 0].item() for name in ("lm_head.weight", "model.embed_tokens.weight")], [1, 3])

    def eight_bits(self, scales):
        eight = self.torch.tensor([[3, -5], [7, 100]], dtype=self.torch.int8)
        self.model({"a.weight": eight, "a.weight_scale": scales, "b.weight": self.torch.ones(2, 2)},
                   quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"})
        return eight.float() * scales

    def test_values_of_a_quantised_weight_are_its_own_or_these_rounded(self):
        torch = self.torch
        values = self.eight_bits(torch.tensor([[0.123456], [1.0]]))
        for kind in (torch.float32, torch.bfloat16, torch.float16):
            self.state(**{"a.weight": values.to(kind)})
            self.assertEqual(self.judged("a.weight"), {"problem": "", "own": False})
        off = values.clone()
        off[0, 1] *= 1.01
        off[1, 0] *= 1.5
        self.state(**{"b.weight": torch.ones(2, 2), "a.weight": off})
        self.assertEqual(self.judged("b.weight"), {"problem": "", "own": False})
        self.assertEqual(self.judged("a.weight")["problem"],
                         "dequantised('a.weight'): 2 of 4 values are not what the checkpoint's stored ones stand for, nor these in bf16 or "
                         "fp16: [1, 0] is 10.5, wanted 7")

    def test_a_kernel_may_order_its_fp32_operations_otherwise(self):
        """Some last bits are let pass, and the rounding of the one beside; more are not, nor another row's last bits."""
        torch = self.torch
        values = self.eight_bits(torch.tensor([[0.123456], [1.0]]))
        near, far = torch.tensor([[1.0 + 2 ** -20], [1.0]]), torch.tensor([[1.0 + 2 ** -18], [1.0]])
        for factor, passes in ((near, True), (1 / near, True), (far, False), (1 / far, False)):
            self.state(**{"a.weight": values * factor})
            self.assertEqual(self.judged("a.weight")["problem"] == "", passes)
        off = values.clone()
        off[1, 0] += 100 * 2 ** -22
        self.state(**{"a.weight": off})
        self.assertEqual(self.judged("a.weight")["problem"], "")
        off[0, 0] += 100 * 2 ** -22
        self.state(**{"a.weight": off})
        self.assertIn("[0, 0] is 0.37", self.judged("a.weight")["problem"])
        # A bit below the middle of two numbers of bf16, and one above it.
        middle = self.eight_bits(torch.tensor([[(1 + 2 ** -8 + 2 ** -23) / 3], [1.0]]))
        for factor, passes in ((1 - 2 ** -22, True), (1 + 2 ** -22, True), (1 + 2 ** -6, False)):
            self.state(**{"a.weight": (middle * factor).to(torch.bfloat16)})
            self.assertEqual(self.judged("a.weight")["problem"] == "", passes, factor)

    def test_weights_that_the_engine_has_quantised_itself(self):
        """Of a whole model, and of what a quantised one stores whole."""
        torch = self.torch
        for config in ({}, {"quantization_config": {"quant_method": "awq", "bits": 4}}):
            self.model({"a.weight": torch.ones(2, 2)}, **config)
            self.state(**{"a.weight": torch.full((2, 2), 1.5)})
            self.assertEqual(self.judged("a.weight"), {"problem": "", "own": True})
            self.state(**{"a.weight": torch.ones(2, 2)})
            self.assertEqual(self.judged("a.weight"), {"problem": "", "own": False})
            for off, told in ((torch.tensor([[0, 0], [0.0, 0]]), "100%"), (torch.tensor([[-1, 2], [3.0, 1]]), "150%")):
                self.state(**{"a.weight": off})
                self.assertEqual(self.judged("a.weight")["problem"], "dequantised('a.weight'): is no nearer to the weight than zeros are: "
                                 f"off by {told} of its root mean square")
            self.state(**{"a.weight": torch.tensor([[0, 0.1], [0, 0]])})
            self.assertEqual(self.judged("a.weight")["problem"], "")
            self.state(**{"a.weight": torch.tensor([[1, float("inf")]])})
            self.assertEqual(self.judged("a.weight"), {"problem": "dequantised('a.weight'): holds NaN or Inf", "own": False})

    def stored_as(self, values, bits, block, bytes_, scale_bits=16, zero_bits=0):
        self.model({"a.weight": values * 1.25})
        self.state({"bits": bits, "block_out": block[0], "block_in": block[1], "scale_bits": scale_bits, "zero_bits": zero_bits,
                    "bytes": bytes_}, **{"a.weight": values})
        self.assertEqual(self.module.declared_bits(self.file), {"a.weight": 8 * bytes_})
        found = self.judged("a.weight")
        self.assertTrue(found["own"])
        return found["problem"].removeprefix("dequantised('a.weight'): ")

    def test_how_a_weight_is_kept_must_have_room_for_it(self):
        values = self.torch.ones(3, 40)
        # 120 values of four bits, and of 3 x 3 blocks, the last cut off, a scale and a zero point.
        for block, scale_bits, zero_bits, needed in (((1, 16), 16, 0, 60 + 18), ((1, 16), 16, 4, 60 + 23), ((2, 40), 32, 0, 60 + 8), ((0, 0), 0, 0, 60)):
            self.assertEqual(self.stored_as(values, 4, block, needed, scale_bits, zero_bits), "")
            self.assertEqual(self.stored_as(values, 4, block, needed - 1, scale_bits, zero_bits),
                             f"storage() declares {needed - 1} bytes, and {needed} for its values, scales and zero points")

    def test_a_block_holds_no_more_different_values_than_its_bits_tell_apart(self):
        torch = self.torch
        values = torch.arange(4 * 34).reshape(4, 34) % 16 + 1.0
        self.assertEqual(self.stored_as(values, 4, (2, 17), 1000), "")
        values[2:, 17:] = 3
        values[3, 20] = 0.5
        self.assertEqual(self.stored_as(values, 4, (2, 17), 1000), "")
        values[2:, 17:] = torch.arange(34).reshape(2, 17) % 17 + 1.0
        self.assertEqual(self.stored_as(values, 4, (2, 17), 1000), "storage() declares 4 bits a value, and the block of row 2 and column 17 holds 17 "
                         "different values")
        self.assertEqual(self.stored_as(values, 8, (2, 17), 1000), "")
        self.assertEqual(self.stored_as(torch.arange(1, 17.0).reshape(1, 16), 4, (1, 16), 1000), "")
        self.assertIn("row 0 and column 0 holds 17", self.stored_as(torch.arange(1, 18.0).reshape(1, 17), 4, (0, 0), 1000, 0))

    def test_a_format_that_is_not_read_cannot_be_held_to_anything(self):
        self.model({"a.weight": self.torch.ones(2, 2)}, quantization_config={"quant_method": "mxfp4"})
        with self.assertRaisesRegex(ValueError, "config.json: quantization_config: quant_method is 'mxfp4', wanted one of fp8, ") as caught:
            self.asked()
        self.assertEqual(caught.exception.mkbench_kind, "bad_input")


if __name__ == "__main__":
    unittest.main()
