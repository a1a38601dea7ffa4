"""references/step_decoder.py: decoders with a step beside counting_decoder.py, which has every function of its own."""

import json
import pathlib
import sys
import tempfile
import unittest

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "references"), str(pathlib.Path(__file__).parent)]

import counting_decoder  # noqa: E402
from step_decoder import StepDecoder, Tensors, Unfit  # noqa: E402

TINY = ROOT / "references" / "data" / "tiny"
CPU = torch.device("cpu")


class Plain(StepDecoder):
    """The ids of counting_decoder.py, as an int."""

    def load(self, model, tensors):
        self.vocab, self.rows = model["vocab_size"], []
        assert (self.device, self.max_context) == (CPU, 40) and isinstance(tensors, Tensors)

    def step(self, token, position):
        assert token.dtype == torch.int64 and token.shape == (1,) and position <= len(self.rows)
        self.rows = self.rows[:position] + [int(token)]
        return sum((at + 1) * (id_ + 7) for at, id_ in enumerate(self.rows)) % self.vocab


class WithLogits(Plain):
    """As a tensor, with logits, and prefilled in one call."""

    def step(self, token, position, logits):
        id_ = super().step(token, position)
        if logits is not None:
            assert logits.isnan().all()
            logits[:] = 10 * torch.nn.functional.one_hot(torch.tensor(id_), self.vocab)
        return torch.tensor(id_)

    def prefill_rows(self, tokens):
        assert len(tokens) > 0
        self.rows = tokens.tolist()


class OneBuffer(Plain):
    """The id in the same int64 tensor every time, as a CUDA graph gives it."""

    def step(self, token, position):
        self.out = getattr(self, "out", torch.zeros(1, dtype=torch.int64))
        return self.out.fill_(super().step(token, position))


class StepDecoderTest(unittest.TestCase):
    def both(self, kind):
        pair = kind(), counting_decoder.Decoder()
        for decoder in pair:
            decoder.open(TINY, CPU, 40)
        return pair

    @torch.no_grad()
    def test_a_step_is_a_whole_decoder(self):
        for kind in (Plain, WithLogits, OneBuffer):
            with self.subTest(kind=kind.__name__):
                mine, other = self.both(kind)
                for prompt in ([5], [5, 17, 96, 0, 33]):
                    for d in (mine, other):
                        d.prefill(torch.tensor(prompt))
                    self.assertEqual(mine.position, len(prompt) - 1)
                    for n, forced in ((4, None), (3, torch.tensor([9, 8, 7])), (2, None)):
                        self.assertEqual(mine.decode(n, forced).tolist(), other.decode(n, forced).tolist())
                    self.assertEqual(mine.position, len(prompt) + 8)
                    for d in (mine, other):
                        d.rewind(3)
                        d.set_pending(60)
                    self.assertEqual(mine.decode(3).tolist(), other.decode(3).tolist())
                    self.assertEqual(mine.position, 6)

    @torch.no_grad()
    def test_logits_by_row(self):
        mine, other = self.both(WithLogits)
        rows = [torch.full((3, other.vocab), torch.nan) for _ in range(2)]
        for d, row in zip((mine, other), rows):
            d.prefill(torch.tensor([5, 17]))
            d.decode(3, logits=row)
        self.assertTrue(torch.equal(*rows))
        with self.assertRaises(TypeError):
            self.both(Plain)[0].decode(1, logits=rows[0])

    def test_tensors(self):
        tensors = Tensors(TINY, CPU)
        norm = tensors.find("model.norm.weight", 128)
        self.assertEqual((norm.dtype, norm.shape), (torch.bfloat16, (128,)))
        self.assertIs(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
        untied = Tensors(TINY.parent / "tiny-untied", CPU)
        self.assertFalse(torch.equal(untied["lm_head.weight"], untied["model.embed_tokens.weight"]))
        for name, shape, said in (("model.norm", (128,), "there is no such tensor"),
                                  ("model.norm.weight", (64,), r"found \[128\] torch.bfloat16, wanted \[64\] bf16")):
            with self.assertRaisesRegex(Unfit, f"{name}: {said}"):
                tensors.find(name, *shape)
        tensors["model.norm.weight"] = norm.float()
        with self.assertRaisesRegex(ValueError, r"found \[128\] torch.float32, wanted \[128\] bf16"):
            tensors.find("model.norm.weight", 128)

    def test_files_that_mkbench_does_not_load_are_left_alone(self):
        """In one file, and in shards that an index names."""
        norm = Tensors(TINY, CPU)["model.norm.weight"]
        for names, index in ((("model.safetensors",), None), (("a.safetensors",), {"weight_map": {"x": "a.safetensors"}})):
            with tempfile.TemporaryDirectory() as made:
                folder = pathlib.Path(made)
                if index:
                    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
                for name in names:
                    save_file({"model.norm.weight": norm}, folder / name)
                save_file({"model.norm.weight": norm + 1}, folder / "old.safetensors")
                self.assertTrue(torch.equal(Tensors(folder, CPU)["model.norm.weight"], norm))


if __name__ == "__main__":
    unittest.main()
