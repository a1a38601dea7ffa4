"""The checkpoint format in Python, with nothing but numpy: tensor order, hashes, splitmix64, folders."""

import hashlib
import json
import pathlib

import numpy as np

from hub_cache import BadInput

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "references" / "data"

LAYER_TENSORS = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def tensor_names(layers, tied):
    """Names of all tensors in the order in which they are numbered and hashed; the head only when untied."""
    names = ["model.embed_tokens.weight"]
    for layer in range(layers):
        names += [f"model.layers.{layer}.{t}.weight" for t in LAYER_TENSORS]
    names.append("model.norm.weight")
    return names if tied else names + ["lm_head.weight"]


def file_sha256(path):
    """sha256 (hex) of a file."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


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
