"""The checkpoint format in Python, with nothing but numpy: tensor order, hashes, splitmix64, folders."""

import dataclasses
import hashlib
import json
import pathlib
import re

import numpy as np

from hub_cache import BadInput

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "references" / "data"
FAMILIES = ROOT / "references" / "model" / "families"
TENSORS = ROOT / "references" / "model" / "weights.cpp"


@dataclasses.dataclass(frozen=True)
class Family:
    """What a file of FAMILIES says of a model_type."""

    model_type: str
    qk_norm: bool
    qkv_bias: bool
    may_omit_head_dim: bool
    may_omit_kv_heads: bool
    may_omit_tie: bool
    null_key: str  # key of config.json that must be there and null; empty: no such key

    def layer_tensors(self):
        """The tensors of a layer in the order in which they are numbered and hashed."""
        has = {"": True, "kQkNorm": self.qk_norm, "kBias": self.qkv_bias}
        rows = re.findall(r'\{"([\w.]+)", &LayerWeights::\w+,\s*\w+,\s*\w+(?:,\s*(\w+))?\}', TENSORS.read_text())
        return [name for name, needs in rows if has[needs]]


def families():
    """model_type -> Family, for every model whose checkpoint is the decoder alone."""
    found = {}
    for path in sorted(FAMILIES.glob("*.cpp")):
        for body in re.findall(r"const Family \w+\{(.*?)\};", path.read_text(), re.S):
            if ".config_key" in body:
                continue
            texts = {"null_key": ""} | dict(re.findall(r'\.(model_type|null_key) = "(\w+)"', body))
            flags = {field.name: f".{field.name} = true" in body for field in dataclasses.fields(Family) if field.type is bool}
            found[texts["model_type"]] = Family(**texts, **flags)
    return found


def tensor_names(layers, tied, model_type="qwen3"):
    """Names of all tensors in the order in which they are numbered and hashed; the head only when untied."""
    names, of_a_layer = ["model.embed_tokens.weight"], families()[model_type].layer_tensors()
    for layer in range(layers):
        names += [f"model.layers.{layer}.{t}" for t in of_a_layer]
    names.append("model.norm.weight")
    return names if tied else names + ["lm_head.weight"]


def file_sha256(path):
    """sha256 (hex) of a file."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def outline_sha256(files):
    """The hash that identifies a model that only transformers computes: over names and bytes of all tensors of its
    safetensors files, in the order of their names (references/outline.h)."""
    tensors, digest = {}, hashlib.sha256()
    for path in files:
        try:
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            tensors |= {name: (path, 8 + size, *entry["data_offsets"]) for name, entry in header.items()}
            if 8 + size + max(entry["data_offsets"][1] for entry in header.values()) != path.stat().st_size:
                raise ValueError("its tensors do not end where the file does")
        except (AttributeError, KeyError, MemoryError, OSError, OverflowError, TypeError, ValueError) as error:
            raise BadInput(f"{path}: no safetensors file: {str(error) or type(error).__name__}") from None
    for name in sorted(tensors, key=str.encode):
        path, base, begin, end = tensors[name]
        digest.update(name.encode() + b"\0")
        digest.update(np.memmap(path, np.uint8, "r", base + begin, (end - begin,)) if end > begin else b"")
    return digest.hexdigest()


def read_json(path):
    """A JSON file. Raises BadInput naming file, line and column."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from None


def list_in_manifest(path):
    """Lists the new hash in manifest.json: mkbench refuses a reference whose hash is not the one listed beside it."""
    manifest = path.parent / "manifest.json"
    ours = path.parent.parent == DATA
    if not manifest.exists() and not ours:
        return  # a folder of the user
    listed = read_json(manifest) if manifest.exists() else {"files": {}}
    if not isinstance(listed, dict) or "files" not in listed:
        return  # the manifest of another program
    listed["files"][path.name] = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
    manifest.write_text(json.dumps(listed, indent=2) + "\n")


def splitmix64(x):
    """splitmix64 of a uint64 array; the increment is added first."""
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
