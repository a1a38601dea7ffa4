"""Weights that a checkpoint stores in fewer bits, and the values that they stand for.

FP8 with block scales, as Qwen publishes it: "X.weight" in e4m3, and "X.weight_scale_inv", a factor for each block of
weight_block_size, [rows, columns]. Activations are not quantised here.
"""

import json
import pathlib

import torch
from safetensors.torch import load_file

SCALE = "_scale_inv"


def bad_input(text):
    error = ValueError(text)
    error.mkbench_kind = "bad_input"
    return error


def block_of(folder):
    """The block size of an FP8 checkpoint; None of any other."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    stated = config.get("quantization_config") or {}
    if stated.get("quant_method") != "fp8":
        return None
    block = stated.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) and size > 0 for size in block)):
        raise bad_input(f"{folder}/config.json: quantization_config.weight_block_size is {block!r}, wanted two sizes of a block: FP8 "
                        "with one scale a tensor or a row is not read yet")
    return block


def files_of(folder):
    """The safetensors files that transformers reads of a folder, which may hold others."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return sorted({folder / name for name in index["weight_map"].values()})


def dequantised(folder, block):
    """All tensors of an FP8 checkpoint by name, its weights in fp32: each value times the scale of its block."""
    stored = {}
    for file in files_of(pathlib.Path(folder)):
        stored |= load_file(file)
    values = {}
    for name, tensor in stored.items():
        if tensor.dtype == torch.float8_e4m3fn:
            tensor = times_scales(tensor, stored.get(name + SCALE), block, f"{folder}: tensor '{name}'")
        if not name.endswith(SCALE):
            values[name] = tensor
    return values


def times_scales(tensor, scales, block, where):
    if scales is None:
        raise bad_input(f"{where}: is FP8 and has no '{SCALE}' beside it")
    wanted = [-(-size // step) for size, step in zip(tensor.shape, block)]
    if list(scales.shape) != wanted or not scales.isfinite().all():
        bad = "of another shape" if list(scales.shape) != wanted else "NaN or Inf"
        raise bad_input(f"{where}: scales {bad}: found {list(scales.shape)}, wanted {wanted} finite ones for blocks of {block}")
    for dim, step in enumerate(block):
        scales = scales.repeat_interleave(step, dim).narrow(dim, 0, tensor.shape[dim])
    return tensor.float() * scales.float()
