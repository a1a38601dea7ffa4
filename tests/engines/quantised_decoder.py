"""Qwen3 with quantised weights over torch operators, an example to start from: fp8 with block scales (as Qwen3-0.6B-FP8 is
published), and int4 in groups as compressed-tensors packs it. A weight is brought to bf16 on the way to its product.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from moe_decoder import MoeDecoder  # noqa: E402

BUGS = ("scales_of_next_block", "scales_read_by_column", "nibbles_swapped", "zero_point_off_by_one")


class QuantisedDecoder(MoeDecoder):
    name = "quantised-torch"
    MODELS, BUGS = ("qwen3",), BUGS

    def get(self, layer, name):
        """The weight in bf16."""
        weight = f"model.layers.{layer}.{name}.weight"
        if weight + "_packed" in self.tensors:
            return self.times_scales(self.unpack(self.tensors[weight + "_packed"]), self.tensors[weight + "_scale"])
        values = super().get(layer, name)
        return values if values.dtype == torch.bfloat16 else self.times_scales(values, self.tensors[weight + "_scale_inv"])

    def unpack(self, words):
        halves = words.view(torch.uint8)
        halves = (halves & 15, halves >> 4)
        if self.bug == "nibbles_swapped":
            halves = halves[::-1]
        return torch.stack(halves, -1).flatten(1).to(torch.int8) - (7 if self.bug == "zero_point_off_by_one" else 8)

    def times_scales(self, values, scales):
        if self.bug == "scales_of_next_block":
            scales = scales.roll(-1, 1)
        if self.bug == "scales_read_by_column":
            scales = scales.T.reshape(scales.shape)
        for dim, size in enumerate(values.shape):
            scales = scales.repeat_interleave(size // scales.shape[dim], dim)
        return (values.float() * scales.float()).to(torch.bfloat16)


Decoder = QuantisedDecoder
