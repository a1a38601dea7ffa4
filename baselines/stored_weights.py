"""Weights that a checkpoint stores in fewer bits, and the values that they stand for. Activations are not quantised here.

| format | stored | value |
|---|---|---|
| fp8 with weight_block_size, as Qwen publishes it | X.weight in e4m3, X.weight_scale_inv a scale a block | product |
| compressed-tensors, 8 bits | X.weight in int8 or e4m3, X.weight_scale [rows, groups] | product |
| compressed-tensors, pack-quantized | X.weight_packed, int32 words of 4 or 8 bits a value, the first in the lowest bits | (bits - half their range) times the scale |
"""

import json
import pathlib

import torch
from hf_decoder import of_kind
from safetensors.torch import load_file

EIGHT_BITS = (torch.float8_e4m3fn, torch.int8)
NOT_READ = {"weight_zero_point": "a zero point", "weight_g_idx": "columns in another order"}


def bad_input(text):
    return of_kind("bad_input", ValueError(text))


def form_of(folder):
    """(name of the format, block size or None) where this file reads it; None of a folder in another format or none."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    stated = config.get("quantization_config") or {}
    if stated.get("quant_method") == "compressed-tensors":
        return str(stated.get("format", "compressed-tensors")), None
    if stated.get("quant_method") != "fp8":
        return None
    block = stated.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) and size > 0 for size in block)):
        raise bad_input(f"{folder}/config.json: quantization_config.weight_block_size is {block!r}, wanted two sizes of a block: fp8 "
                        "with one scale a tensor is not read yet")
    return "fp8", block


def files_of(folder):
    """The safetensors files that transformers reads of a folder, which may hold others."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return sorted({folder / name for name in index["weight_map"].values()})


def dequantised(folder, block):
    """All tensors of such a checkpoint by name, its quantised weights in fp32."""
    stored, values = {}, {}
    for file in files_of(pathlib.Path(folder)):
        stored |= load_file(file)
    for name, tensor in stored.items():
        where, module = f"{folder}: tensor '{name}'", name.rpartition(".")[0]
        part = name.removeprefix(module + ".")
        if part in NOT_READ:
            raise bad_input(f"{where}: is {NOT_READ[part]}, which is not read yet")
        scales = stored.get(f"{module}.weight_scale" if block is None else f"{module}.weight_scale_inv")
        if part == "weight_packed":
            shape = stored.get(f"{module}.weight_shape", torch.zeros(2)).tolist()
            values[f"{module}.weight"] = times_scales(unpacked(tensor, int(shape[1]), where), scales, block, where)
        elif tensor.dtype in EIGHT_BITS:
            values[name] = times_scales(tensor, scales, block, where)
        elif part not in ("weight_scale", "weight_scale_inv", "weight_shape"):
            values[name] = tensor
    return values


def unpacked(words, columns, where):
    """The signed integers of packed words, [rows, columns]."""
    for bits in (4, 8):
        if columns > 0 and words.shape[1] == -(-columns * bits // 32):
            parts = words.contiguous().view(torch.uint8)
            if bits == 4:
                parts = torch.stack((parts & 15, parts >> 4), -1).flatten(1)
            return parts[:, :columns].to(torch.int16) - (1 << bits - 1)
    raise bad_input(f"{where}: {words.shape[1]} words hold {columns} columns (weight_shape), wanted 4 or 8 bits a value")


def times_scales(tensor, scales, block, where):
    """Each value times the scale of its block; without a block size the scales divide the tensor evenly."""
    if scales is None:
        raise bad_input(f"{where}: is quantised and has no scales beside it")
    scales = scales.reshape(1, 1) if scales.numel() == 1 and block is None else scales
    if block is None and scales.dim() == 2:
        block = [-(-size // count) for size, count in zip(tensor.shape, scales.shape)]
    wanted = [-(-size // step) for size, step in zip(tensor.shape, block or [])]
    bad = "of another shape" if list(scales.shape) != wanted else "" if scales.isfinite().all() else "NaN or Inf"
    if bad:
        raise bad_input(f"{where}: scales {bad}: found {list(scales.shape)}, wanted {wanted} finite ones for blocks of {block}")
    for dim, step in enumerate(block):
        scales = scales.repeat_interleave(step, dim).narrow(dim, 0, tensor.shape[dim])
    return tensor.float() * scales.float()
