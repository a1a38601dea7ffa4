"""Makes a quantised copy of a checkpoint: fp8 with scales of blocks of 32 x 32, or int4 with scales of 16 columns as
compressed-tensors packs it.

usage: quantised_model.py FOLDER OUT fp8|int4
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

BLOCK, GROUP = 32, 16
FORMS = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
}


def quantise(weight, height, width, largest):
    """(values / scales, scales) of a matrix with a scale for `height` rows of `width` columns."""
    blocks = weight.float().unflatten(1, (-1, width)).unflatten(0, (-1, height))
    scales = blocks.abs().amax((1, 3)) / largest
    return (blocks / scales[:, None, :, None]).flatten(2, 3).flatten(0, 1), scales


def tensors_of(name, weight, form):
    if form == "fp8":
        values, scales = quantise(weight, BLOCK, BLOCK, 448)
        return {name: values.to(torch.float8_e4m3fn), name + "_scale_inv": scales}
    values, scales = quantise(weight, 1, GROUP, 7)
    halves = (values.round().to(torch.int64) + 8).unflatten(1, (-1, 8))
    words = (halves << torch.arange(0, 32, 4)).sum(-1)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return {name + "_packed": words, name + "_scale": scales, name + "_shape": torch.tensor(weight.shape)}


def main():
    folder, out, form = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    out.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": FORMS[form]}))
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        tensors |= tensors_of(name, tensor, form) if name.endswith("_proj.weight") else {name: tensor}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")


if __name__ == "__main__":
    main()
