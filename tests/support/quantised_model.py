"""Makes a quantised copy of a checkpoint in a format of baselines/stored_weights.py.

usage: quantised_model.py FOLDER OUT fp8|int8|int4|awq|gptq|nf4
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

BLOCK, GROUP = 32, 16
COMPRESSED = {"quant_method": "compressed-tensors"}
STATED = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
    "int8": COMPRESSED | {"format": "int-quantized"},
    "int4": COMPRESSED | {"format": "pack-quantized"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": BLOCK, "version": "gemm", "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": BLOCK, "desc_act": True, "sym": False},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
NF4 = [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302, 0.2461123,
       0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0]


def packed(values, dim, order=range(8)):
    """Integers of four bits in int32 words along a dimension; the places in a word of each of eight values."""
    words = sum(values.long().unflatten(dim, (-1, 8)).select(dim + 1, i) << 4 * place for i, place in enumerate(order))
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def by_block(weight, height, width, largest):
    """(values / scales, scales) of a matrix with a scale for `height` rows of `width` columns."""
    blocks = weight.unflatten(1, (-1, width)).unflatten(0, (-1, height))
    scales = blocks.abs().amax((1, 3)) / largest
    return (blocks / scales[:, None, :, None]).flatten(2, 3).flatten(0, 1), scales


def by_group(weight):
    """Of [in, out] in groups of inputs, each with a zero point: integers, zero points and scales."""
    groups = weight.unflatten(0, (-1, BLOCK))
    low, high = groups.amin(1), groups.amax(1)
    scales = ((high - low) / 15).half()
    zeros = (-low / scales).round().clamp(2, 15)  # so that a zero point less one is no other word's bit
    return (groups / scales[:, None] + zeros[:, None]).round().clamp(0, 15).flatten(0, 1), zeros, scales


def fp8(weight):
    values, scales = by_block(weight, BLOCK, BLOCK, 448)
    return {"weight": values.to(torch.float8_e4m3fn), "weight_scale_inv": scales}


def int8(weight):
    values, scales = by_block(weight, 1, weight.shape[1], 127)
    return {"weight": values.round().to(torch.int8), "weight_scale": scales}


def int4(weight):
    values, scales = by_block(weight, 1, GROUP, 7)
    return {"weight_packed": packed(values.round() + 8, 1), "weight_scale": scales, "weight_shape": torch.tensor(weight.shape)}


def awq(weight):
    values, zeros, scales = by_group(weight.T)
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    return {"qweight": packed(values, 1, order), "qzeros": packed(zeros, 1, order), "scales": scales}


def gptq(weight):
    """Inputs are in groups by another order, as GPTQ leaves them after act-order."""
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(1))
    sorted_values, zeros, scales = by_group(weight.T[order])
    values, groups = torch.empty_like(sorted_values), torch.empty_like(order)
    values[order], groups[order] = sorted_values, torch.arange(len(order)) // BLOCK
    return {"qweight": packed(values, 0), "qzeros": packed(zeros - 1, 1), "scales": scales, "g_idx": groups.to(torch.int32)}


def nf4(weight):
    blocks = weight.reshape(-1, 64)
    largest = blocks.abs().amax(1)
    halves = ((blocks / largest[:, None])[..., None] - torch.tensor(NF4)).abs().argmin(-1).reshape(-1, 2)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)}
    return {"weight": (halves[:, :1] << 4 | halves[:, 1:]).to(torch.uint8), "weight.absmax": largest, "weight.quant_map": torch.tensor(NF4),
            "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)}


def make(folder, out, form):
    out.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": STATED[form]}))
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            tensors |= {name.removesuffix("weight") + part: values for part, values in globals()[form](tensor.float()).items()}
        else:  # AWQ and GPTQ publish fp16 beside their words
            tensors[name] = tensor.half() if form in ("awq", "gptq") else tensor
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
