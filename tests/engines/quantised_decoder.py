"""Qwen3 with quantised weights over torch operators, an example to start from. It reads all formats of
baselines/stored_weights.py; a product is made with the values that the stored weights stand for, in fp32.
"""

import os
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "baselines")]

from moe_decoder import MoeDecoder  # noqa: E402
from stored_weights import Weights  # noqa: E402

BROKEN = "model.layers.2.mlp.down_proj"  # the one weight that a bug of BUGS is planted in
SCALES = ("weight_scale_inv", "weight_scale", "scales", "weight.absmax")
WORDS = ("weight_packed", "qweight", "weight")


def table_of(scales, parts):
    """Scales as [outputs, groups of inputs]."""
    if "qweight" in parts:
        return scales.T
    return scales.view(-1, parts["weight.groups"]) if "weight.groups" in parts else scales


def changed_scales(change):
    def plant(parts):
        name = next(name for name in SCALES if name in parts)
        table = change(table_of(parts[name], parts))
        parts[name] = (table.T if "qweight" in parts else table).reshape(parts[name].shape).contiguous()
    return plant


def changed_words(names, change):
    def plant(parts):
        name = next(name for name in names if name in parts)
        parts[name] = change(parts[name])
    return plant


def swapped(words):
    halves = words.contiguous().view(torch.uint8)
    return (halves >> 4 | halves << 4).view(words.dtype)


BUGS = {
    "scale_of_next_row": changed_scales(lambda table: table.roll(-1, 0)),
    "scale_of_next_group": changed_scales(lambda table: table.roll(-1, 1)),
    "groups_along_outputs": changed_scales(lambda table: table.T.reshape(table.shape)),
    "scales_in_bf16": changed_scales(lambda table: table.to(torch.bfloat16).to(table.dtype)),
    "nibbles_swapped": changed_words(WORDS, swapped),
    "zero_point_off_by_one": changed_words(("qzeros", "weight_packed"), lambda words: words - 0x11111111),
}


class QuantisedDecoder(MoeDecoder):
    name = "quantised-torch"
    MODELS, BUGS = ("qwen3",), tuple(BUGS)

    def open(self, folder, device, max_context):
        self.folder = folder
        super().open(folder, device, max_context)

    def load(self, model, tensors):
        self.bug = os.environ.get("DECODER_BUG", "")
        stored = Weights(self.folder)
        values = dict(stored)
        if self.bug:
            parts = {stored.owner(name)[1]: tensor.cpu() for name, tensor in tensors.items() if name.startswith(BROKEN + ".")}
            if "weight.absmax" in parts:
                parts["weight.groups"] = values[f"{BROKEN}.weight"].shape[1] * len(parts["weight.absmax"]) // values[f"{BROKEN}.weight"].numel()
            BUGS[self.bug](parts)
            values[f"{BROKEN}.weight"] = stored.reader.values(parts, stored.stated, BROKEN)
        tensors.update({name: value.to(self.device) for name, value in values.items()})
        for name, tensor in tensors.items():
            if tensor.dtype == torch.float16:  # of AWQ and GPTQ, what they leave whole
                tensors[name] = tensor.to(torch.bfloat16)
        super().load(model, tensors)

    def dequantised(self, name):
        return self.tensors.get(name)


Decoder = QuantisedDecoder
