"""Qwen3 over torch operators that brings a bf16 model's weights to four bits when it opens, in groups of 32 inputs, and says
what they stand for and how it would keep them: judged by that with --truth dequantised. Its products read fp32 all the same.
"""

import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from moe_decoder import MoeDecoder  # noqa: E402

GROUP = 32


def coarse(weight):
    groups = weight.float().unflatten(1, (-1, GROUP))
    scales = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scales).round() * scales).flatten(1)


class CoarseDecoder(MoeDecoder):
    name = "coarse-torch"
    MODELS = ("qwen3",)
    BUGS = ("says_what_it_was_given", "says_another_shape", "says_nothing", "one_weight_in_bf16", "declares_no_scales", "declares_nothing",
            "declares_a_strange_type")

    def load(self, model, tensors):
        self.said = {name: tensor for name, tensor in tensors.items() if name.endswith("_proj.weight")}
        whole = "layers.2.mlp.down_proj.weight" if os.environ.get("DECODER_BUG") == "one_weight_in_bf16" else None
        tensors.update({name: tensor if whole and name.endswith(whole) else coarse(tensor) for name, tensor in self.said.items()})
        super().load(model, tensors)

    def dequantised(self, name):
        if name not in self.said or self.bug == "says_nothing":
            return None
        if self.bug == "says_another_shape":
            return self.tensors[name][1:]
        return self.said[name] if self.bug == "says_what_it_was_given" else self.tensors[name]

    def storage(self, name):
        if self.bug in ("declares_nothing", "says_what_it_was_given"):
            return None
        values = self.said[name].numel()
        scales = 0 if self.bug == "declares_no_scales" else 4 * values // GROUP
        return {"dtype": "int5" if self.bug == "declares_a_strange_type" else "int4", "scale_block": [1, GROUP], "scale_dtype": "fp32",
                "zero_dtype": None, "bytes": values // 2 + scales}


Decoder = CoarseDecoder
