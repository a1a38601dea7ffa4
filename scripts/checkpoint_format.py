"""The checkpoint format in Python, with nothing but numpy: tensor order, hashes, splitmix64, folders."""

import hashlib
import pathlib

import numpy as np

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


def splitmix64(x):
    """splitmix64 of a uint64 array; the increment is added first."""
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
