"""Qwen3 over torch operators that brings a bf16 model's weights to four bits when it opens, in groups of 16 inputs, and says
what they stand for: judged by that with --truth dequantised.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from moe_decoder import MoeDecoder  # noqa: E402


def coarse(weight):
    groups = weight.float().unflatten(1, (-1, 16))
    scales = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scales).round() * scales).flatten(1)


class CoarseDecoder(MoeDecoder):
    name = "coarse-torch"
    MODELS, BUGS = ("qwen3",), ("says_what_it_was_given", "says_another_shape", "says_nothing")

    def load(self, model, tensors):
        self.said = {name: tensor for name, tensor in tensors.items() if name.endswith("_proj.weight")}
        tensors.update({name: coarse(tensor) for name, tensor in self.said.items()})
        super().load(model, tensors)

    def dequantised(self, name):
        if name not in self.said or self.bug == "says_nothing":
            return None
        if self.bug == "says_another_shape":
            return self.tensors[name][1:]
        return self.said[name] if self.bug == "says_what_it_was_given" else self.tensors[name]


Decoder = CoarseDecoder
