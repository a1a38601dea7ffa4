"""Weights that a checkpoint stores in fewer bits, and the values that they stand for. Activations are not quantised here.

A file stored_*.py reads what one `quant_method` of config.json stores. It defines
  PARTS   the tensors of a quantised weight, by what follows its module's name; a step reads these
  BESIDE  those of which a step reads nothing, or a few values once: shapes, orders, tables
  form_of(stated)          the format's name; raises bad_input where `stated`, the quantization_config, is not read
  values(parts, stated)    the values, fp32 [out, in], of parts, {name: tensor}; raises bad_input
"""

import json
import pathlib

import stored_awq
import stored_bitsandbytes
import stored_compressed
import stored_fp8
import stored_gptq
import torch
from safetensors.torch import load_file
from stored_parts import bad_input

EIGHT_BITS = (torch.float8_e4m3fn, torch.int8)
METHODS = {"fp8": stored_fp8, "compressed-tensors": stored_compressed, "awq": stored_awq, "gptq": stored_gptq,
           "bitsandbytes": stored_bitsandbytes}


class Stored:
    """A folder's format."""

    def __init__(self, folder, stated):
        self.folder, self.stated = pathlib.Path(folder), stated
        self.reader = METHODS[stated["quant_method"]]
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
