"""Model folders that tests take apart, change and write again."""

import json
import math
import struct

from support.cli_support import DATA

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}


class Checkpoint:
    """Config and tensors of a model folder, to be changed and written. A tensor is [dtype, shape, data]."""

    def __init__(self, config, tensors):
        self.config, self.tensors, self.manifest = config, tensors, None

    @classmethod
    def committed(cls, name):
        raw = (DATA / name / "model.safetensors").read_bytes()
        end = 8 + struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:end])
        header.pop("__metadata__", None)
        tensors = {tensor: [t["dtype"], t["shape"], raw[end + t["data_offsets"][0]:end + t["data_offsets"][1]]]
                   for tensor, t in header.items()}
        return cls(json.loads((DATA / name / "config.json").read_text()), tensors)

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        write_safetensors(folder / "model.safetensors", self.tensors)
        if self.manifest is not None:
            (folder / "manifest.json").write_text(json.dumps(self.manifest))
        return folder


def write_safetensors(path, tensors):
    """Tensors without data become a hole in the file, which takes no room on the disk."""
    header, at = {}, 0
    for name, (dtype, shape, _) in tensors.items():
        size = BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, data) in tensors.items():
            if data is not None:
                out.seek(8 + len(text) + header[name]["data_offsets"][0])
                out.write(data)
        out.truncate(8 + len(text) + at)
