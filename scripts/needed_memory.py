"""The memory that an engine in Python will take, estimated without loading its file, which could take minutes."""

import ast
import pathlib

from host_surroundings import engine_path

# What an import adds to a process beside the pages of libtorch, which every process of a run shares (torch 2.11,
# transformers 5.17, x86-64).
LIBRARY_BYTES = {"torch": 330_000_000, "transformers": 150_000_000}
HF = ("hf_decoder.py", "hf_static_decoder.py")  # whose products take quantised weights in fp32 (baselines/hf_decoder.py)


def library_bytes(path: str) -> int:
    """The memory of the libraries that an engine's file imports."""
    try:
        nodes = list(ast.walk(ast.parse(pathlib.Path(path).read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return 0  # opening the engine will fail and say why
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return sum(LIBRARY_BYTES.get(package, 0) for package in {name.partition(".")[0] for name in names})


def needed_bytes(request: dict, config: dict) -> int:
    """The bytes that an engine will take: KV rows in bf16 and the large matrices, which on a CPU stay in the snapshot's
    mapped files; all in fp32 of the truth that transformers computes, and no more than two layers where they are kept on
    the host; the matrices in fp32 of hf where they were quantised; on a CPU also the libraries that the engine imports."""
    shape, tied, outline = config["shape"], config["tie_word_embeddings"], 2 * config["outline_values"]
    kv_row = 2 * shape["kv_heads"] * shape["head_dim"]
    rows = 2 * shape["layers"] * kv_row * request["max_context"]  # windows too
    layer = shape["hidden"] * (2 * shape["heads"] * shape["head_dim"] + kv_row + 3 * shape["intermediate"])
    tables = 2 * (1 if tied else 2) * shape["vocab"] * shape["hidden"]
    weights = outline or tables + 2 * shape["layers"] * layer
    settings = dict(line.split("=", 1) for line in request["settings"].splitlines())
    if settings.get("layers") == "host":
        tables = min(weights, tables)
        weights = tables + 2 * (weights - tables) // shape["layers"]
    fp32 = request["precision"] == "fp32"
    few_bits = 0 < config["outline_bytes"] < outline
    quantised = "values" in settings or few_bits and pathlib.Path(request["name"]).name in HF
    if not (outline or request["cuda"] or fp32 or quantised):
        weights = 0
    head = 4 * shape["vocab"] * shape["hidden"] if request["precision"] == "head-fp32" else 0
    libraries = 0 if request["cuda"] else library_bytes(engine_path(request["name"]))
    return (2 if fp32 or quantised else 1) * weights + (2 if fp32 else 1) * rows + head + libraries
