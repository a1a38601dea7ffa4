"""Qwen3 with weights in FP8 and block scales (as Qwen3-0.6B-FP8 is published) over torch operators: an example to start
from. A weight is brought to bf16 on the way to its product.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from moe_decoder import MoeDecoder  # noqa: E402
from torch_steps import Unfit  # noqa: E402

BUGS = ("scales_of_next_block", "scales_read_by_column")


class Fp8Decoder(MoeDecoder):
    name = "fp8-torch"
    MODELS, BUGS = ("qwen3",), BUGS

    def load(self, model, tensors):
        self.block = model.get("quantization_config", {}).get("weight_block_size")
        if not self.block:
            raise Unfit("found no quantization_config with weight_block_size, wanted FP8 with block scales")
        super().load(model, tensors)

    def get(self, layer, name):
        weight = super().get(layer, name)
        if weight.dtype != torch.float8_e4m3fn:
            return weight
        scales = self.tensors[f"model.layers.{layer}.{name}.weight_scale_inv"]
        if self.bug == "scales_of_next_block":
            scales = scales.roll(-1, 1)
        if self.bug == "scales_read_by_column":
            scales = scales.T.reshape(scales.shape)
        for dim, step in enumerate(self.block):
            scales = scales.repeat_interleave(step, dim).narrow(dim, 0, weight.shape[dim])
        return (weight.float() * scales.float()).to(torch.bfloat16)


Decoder = Fp8Decoder
