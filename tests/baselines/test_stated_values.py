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

    def state(self, **weights):
        index, offset = "", 0
        with self.file.open("wb") as file:
            for name, value in weights.items():
                index += json.dumps({"name": name, "shape": list(value.shape), "offset": offset}) + "\n"
                offset += file.write(value.float().numpy().tobytes())
        pathlib.Path(f"{self.file}.index").write_text(index)

    def config(self):
        text = types.SimpleNamespace(tie_word_embeddings=True)
        return types.SimpleNamespace(tie_word_embeddings=True, get_text_config=lambda: text)

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
        asked = self.module.stated_values(self.folder, "")
        self.assertEqual(asked, {"own": True, "weights": [{"name": "model.embed_tokens.weight", "shape": [3, 2]},
                                                          {"name": "lm_head.weight", "shape": [3, 2]}]})
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
        self.assertEqual([weight["name"] for weight in self.module.stated_values(self.folder, "")["weights"]],
                         ["lm_head.weight", "model.embed_tokens.weight"])

    def test_values_of_a_quantised_model_are_its_own_or_these_rounded(self):
        torch, eight = self.torch, self.torch.tensor([[3, -5], [7, 100]], dtype=self.torch.int8)
        scales = torch.tensor([[0.123456], [1.0]])
        self.model({"a.weight": eight, "a.weight_scale": scales, "b.weight": torch.ones(2, 2)},
                   quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"})
        self.assertEqual(self.module.stated_values(self.folder, "")["own"], False)
        values = eight.float() * scales
        for kind in (torch.float32, torch.bfloat16, torch.float16):
            self.state(**{"a.weight": values.to(kind)})
            self.assertEqual(self.module.stated_values(self.folder, self.file), {"own": False})
        off = values.clone()
        off[0, 1] *= 1.01
        off[1, 0] *= 1.5
        self.state(**{"b.weight": torch.ones(2, 2), "a.weight": off})
        problem = self.module.stated_values(self.folder, self.file)["problem"]
        self.assertEqual(problem, "dequantised('a.weight'): 2 of 4 values are not what the checkpoint's stored ones stand for, nor these "
                                  "in bf16 or fp16: [1, 0] is 10.5, wanted 7")

    def test_a_whole_model_is_the_engines_own_doing(self):
        self.model({"a.weight": self.torch.ones(2, 2)})
        self.state(**{"a.weight": self.torch.full((2, 2), 7.0)})
        self.assertEqual(self.module.stated_values(self.folder, self.file), {"own": True})
        self.state(**{"a.weight": self.torch.tensor([[1, float("inf")]])})
        self.assertEqual(self.module.stated_values(self.folder, self.file), {"own": True, "problem": "dequantised('a.weight'): holds NaN or Inf"})


if __name__ == "__main__":
    unittest.main()
