"""The weights of a folder by name; of those that it stores in fewer bits, the values that they stand for. Activations and
KV rows are not quantised here, whatever the folder states for them.

A file stored_*.py reads what one `quant_method` of config.json stores. It defines
  PARTS   the tensors of a quantised weight, by what follows its module's name; a step reads these
  BESIDE  its other tensors, shapes, orders and tables, which are not counted as read
  form_of(stated)  the format's name; raises ValueError where `stated`, the quantization_config, is not read
  shape(parts)     [out, in] of Parts
  values(parts, stated, module)  the values, fp32 [out, in]; raises bad_input
"""

import collections.abc
import functools
import json
import pathlib

import stored_awq
import stored_bitsandbytes
import stored_compressed
import stored_fp8
import stored_gptq
import torch
from safetensors import safe_open
from stored_parts import bad_input

EIGHT_BITS = ("F8_E4M3", "I8")
METHODS = {"fp8": stored_fp8, "compressed-tensors": stored_compressed, "awq": stored_awq, "gptq": stored_gptq,
           "bitsandbytes": stored_bitsandbytes}


class Parts(collections.abc.Mapping):
    """The tensors of one weight by part, each read when it is asked for."""

    def __init__(self):
        self.places = {}  # (open file, tensor's name) by part

    def __getitem__(self, part):
        file, name = self.places[part]
        return file.get_tensor(name)

    def __iter__(self):
        return iter(self.places)

    def __len__(self):
        return len(self.places)

    def header(self, part):
        """(shape, storage type) of a tensor."""
        file, name = self.places[part]
        found = file.get_slice(name)
        return list(found.get_shape()), found.get_dtype()

    def shape(self, part):
        return self.header(part)[0]


class Weights(collections.abc.Mapping):
    """Values by name. `reader` is None, and `form` empty, where all weights are stored whole, or by an unknown method."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.stated = json.loads((self.folder / "config.json").read_text()).get("quantization_config") or {}
        self.method = self.stated.get("quant_method")
        self.reader, self.form = METHODS.get(self.method), ""
        if self.reader:
            try:
                self.form = self.reader.form_of(self.stated)
            except ValueError as refusal:
                raise bad_input(f"{folder}/config.json: quantization_config: {refusal}") from refusal

    @functools.cached_property
    def parts(self):
        """{weight: Parts}; a whole tensor that is called otherwise is the part "" of its name."""
        parts = {}
        for path in files_of(self.folder):
            file = safe_open(path, "pt")
            for name in file.keys():
                module, part = self.owner(name)
                parts.setdefault(f"{module}.weight" if part else name, Parts()).places[part] = (file, name)
        return parts

    def owner(self, name):
        """(module, part) of a tensor; part "" of one that is no part of a quantised weight."""
        for part in (*self.reader.PARTS, *self.reader.BESIDE) if self.reader else ():
            if name.endswith("." + part):
                return name[:-len(part) - 1], part
        return name, ""

    def is_stored(self, name):
        """Whether the folder stores this weight in fewer bits."""
        parts = self.parts[name]
        return "" not in parts and (list(parts) != ["weight"] or parts.header("weight")[1] in EIGHT_BITS)

    def __iter__(self):
        return iter(self.parts)

    def __len__(self):
        return len(self.parts)

    def shape(self, name):
        parts = self.parts[name]
        return self.read(name, self.reader.shape, parts) if self.is_stored(name) else parts.shape(*parts)

    def __getitem__(self, name):
        parts = self.parts[name]
        if not self.is_stored(name):
            return parts[next(iter(parts))]
        return self.read(name, self.reader.values, parts, self.stated, name.removesuffix(".weight"))

    def read(self, name, reader, *args):
        try:
            return reader(*args)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as refusal:  # of tensors that do not fit each other, anything
            raise bad_input(f"{self.folder}: weight '{name}', {self.form}: {refusal}") from refusal


def stored_in(folder):
    """The weights of a folder that one of METHODS reads; None of others."""
    weights = Weights(folder)
    return weights if weights.reader else None


def files_of(folder):
    """The safetensors files that transformers reads of a folder, which may hold others."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return sorted({folder / name for name in index["weight_map"].values()})
