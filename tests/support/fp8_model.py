"""Makes an FP8 copy of a checkpoint, with block scales as Qwen publishes it.

usage: fp8_model.py FOLDER OUT BLOCK
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

LARGEST = 448  # of e4m3


def quantise(weight, block):
    """(e4m3 values, scales) of a matrix."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % block, 0, -rows % block))
    blocks = padded.unflatten(1, (-1, block)).unflatten(0, (-1, block))
    scales = blocks.abs().amax((1, 3)) / LARGEST
    values = (blocks / scales[:, None, :, None]).flatten(2, 3).flatten(0, 1)
    return values[:rows, :columns].to(torch.float8_e4m3fn).contiguous(), scales


def main():
    folder, out, block = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    out.mkdir()
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [block, block]}
    (out / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            tensors[name], tensors[name + "_scale_inv"] = quantise(tensor, block)
        else:
            tensors[name] = tensor
    save_file(tensors, out / "model.safetensors")


if __name__ == "__main__":
    main()
