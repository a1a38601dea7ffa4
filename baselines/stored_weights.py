"""Weights that a checkpoint stores in fewer bits, and the values that they stand for. Activations are not quantised here.

A file stored_*.py reads what one `quant_method` of config.json stores. It defines
  PARTS   the tensors of a quantised weight, by what follows its module's name; a step reads these
  BESIDE  those of which a step reads nothing, or a few values once: shapes, orders, tables
  form_of(stated)          the format's name; raises bad_input where `stated`, the quantization_config, is not read
  values(parts, stated)    the values, fp32 [out, in], of parts, {name: tensor}; raises bad_input
"""

import importlib
import json
import pathlib

import torch
from hf_decoder import of_kind
from safetensors.torch import load_file

EIGHT_BITS = (torch.float8_e4m3fn, torch.int8)
METHODS = {"fp8": "stored_fp8", "compressed-tensors": "stored_compressed", "awq": "stored_awq", "gptq": "stored_gptq",
           "bitsandbytes": "stored_bitsandbytes"}


def bad_input(text):
    return of_kind("bad_input", ValueError(text))


class Stored:
    """A folder's format."""

    def __init__(self, folder, stated):
        self.folder, self.stated = pathlib.Path(folder), stated
        self.reader = importlib.import_module(METHODS[stated["quant_method"]])
        try:
            self.form = self.reader.form_of(stated)
        except ValueError as refusal:
            raise bad_input(f"{folder}/config.json: quantization_config: {refusal}") from refusal

    def owner(self, name):
        """(module, part) of a tensor; part "" of one that is no part of a quantised weight."""
        for part in (*self.reader.PARTS, *self.reader.BESIDE):
            if name.endswith("." + part):
                return name[:-len(part) - 1], part
        return name, ""

    def dequantised(self):
        """All tensors by name, the quantised weights in fp32."""
        values, modules = {}, {}
        for file in files_of(self.folder):
            for name, tensor in load_file(file).items():
                module, part = self.owner(name)
                if part:
                    modules.setdefault(module, {})[part] = tensor
                else:
                    values[name] = tensor
        for module, parts in modules.items():
            whole = parts.get("weight")
            if len(parts) == 1 and whole is not None and whole.dtype not in EIGHT_BITS:
                values[f"{module}.weight"] = whole
                continue
            try:
                values[f"{module}.weight"] = self.reader.values(parts, self.stated)
            except ValueError as refusal:
                raise bad_input(f"{self.folder}: weight '{module}': {refusal}") from refusal
        return values


def stored_in(folder):
    """The format of a folder that one of METHODS reads; None of others."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    stated = config.get("quantization_config") or {}
    return Stored(folder, stated) if stated.get("quant_method") in METHODS else None


def files_of(folder):
    """The safetensors files that transformers reads of a folder, which may hold others."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return sorted({folder / name for name in index["weight_map"].values()})


def part_of(parts, name):
    if name not in parts:
        raise bad_input(f"is quantised and has no {name} beside {', '.join(sorted(parts))}")
    return parts[name]


def unpacked(words, bits, dim):
    """The unsigned integers of int32 words along a dimension, the first in a word's lowest bits, in int16."""
    parts = [(words >> shift & (1 << bits) - 1).to(torch.int16) for shift in range(0, 32, bits)]
    return torch.stack(parts, dim + 1).flatten(dim, dim + 1)


def times_scales(tensor, scales, block=None):
    """Each value times the scale of its block, in fp32; without a block size the scales divide the tensor evenly."""
    if block is None:
        scales = scales.reshape(-1, 1) if scales.dim() < 2 else scales
        block = [size // count if count and size % count == 0 else 0 for size, count in zip(tensor.shape, scales.shape)]
    wanted = [-(-size // step) if step else "a divisor of " + str(size) for size, step in zip(tensor.shape, block)]
    if list(scales.shape) != wanted or not scales.isfinite().all():
        bad = "NaN or Inf" if list(scales.shape) == wanted else "of another shape"
        raise bad_input(f"scales {bad}: found {list(scales.shape)}, wanted {wanted} finite ones of a matrix {list(tensor.shape)}")
    for dim, step in enumerate(block):
        scales = scales.repeat_interleave(step, dim).narrow(dim, 0, tensor.shape[dim])
    return tensor.float() * scales.float()
