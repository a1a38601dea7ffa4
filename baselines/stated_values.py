"""The values that an engine says its weights stand for (--truth dequantised): a file of fp32 numbers, one weight behind
another, and FILE.index, a line of JSON for each: its name, shape, offset in bytes and, where the engine says how it keeps
the weight, its storage (references/weight_storage.h).
"""

import json
import pathlib

import numpy
import torch
from hf_decoder import of_kind
from stored_weights import METHODS, Weights

HEAD = "lm_head.weight"
TABLE = "embed_tokens.weight"  # how the name of an embedding ends, which may be the LM head too
ROUNDED = (torch.float32, torch.bfloat16, torch.float16)  # an engine may bring weights to these on their way to a product


def table_of(names):
    """The embedding's name; "" where there is not exactly one."""
    tables = [name for name in names if name.endswith(TABLE)]
    return tables[0] if len(tables) == 1 else ""


def index_of(file):
    """{name: entry} of a file's index."""
    return {entry["name"]: entry for entry in map(json.loads, pathlib.Path(f"{file}.index").read_text().splitlines())}


def stated(file):
    """{name: fp32 tensor} of a file."""
    return {name: torch.from_numpy(numpy.memmap(file, numpy.float32, "c", entry["offset"], tuple(entry["shape"])))
            for name, entry in index_of(file).items()}


def declared_bits(file):
    """{name: bits that a step reads} of the weights of which the engine says how it keeps them."""
    return {name: 8 * entry["storage"]["bytes"] for name, entry in index_of(file).items() if "storage" in entry}


def weights_by(folder, file, config):
    """A folder's weights with the values of a file in their places. A head that differs from the embedding is no longer tied
    in `config`; one of which nothing is said follows the embedding."""
    weights, found = Weights(folder), stated(file)
    whole = {name: found[name] if name in found else weights[name] for name in weights}
    table = table_of(whole)
    if not table or not config.get_text_config().tie_word_embeddings or (HEAD in weights and not torch.equal(weights[HEAD], weights[table])):
        return whole
    whole.pop(HEAD, None)
    if HEAD in found and not torch.equal(found[HEAD], whole[table].float()):
        whole[HEAD] = found[HEAD]
        for part in (config, config.get_text_config()):
            part.tie_word_embeddings = False
    return whole


def is_rounded(found, wanted, kind):
    """Whether values are `wanted` in a type, however the fp32 operations behind them are ordered: a zero point may be taken
    off before the product with the scale, or after it."""
    room = wanted.abs() * 2 ** -20 + wanted.abs().amax(-1, keepdim=True) * 2 ** -22
    low, high = ((wanted + sign * room).to(kind).float() for sign in (-1, 1))
    return bool(((low <= found) & (found <= high) & (found == found.to(kind).float())).all())


def problem_of_stored(found, wanted):
    """Where values differ most from what a checkpoint's weight stands for; "" where they are it, or it rounded."""
    if any(is_rounded(found, wanted, kind) for kind in ROUNDED):
        return ""
    off = (found - wanted).abs()
    at = numpy.unravel_index(int(off.argmax()), tuple(found.shape))
    place = ", ".join(str(int(i)) for i in at)
    return (f"{int((off > 0).sum()):,} of {off.numel():,} values are not what the checkpoint's stored ones stand for, nor these in bf16 or "
            f"fp16: [{place}] is {float(found[at]):.9g}, wanted {float(wanted[at]):.9g}")


def blocks_of(values, height, width):
    """[blocks, height * width] of a matrix; a block that the matrix cuts off is filled with the value at its end."""
    rows, columns = values.shape
    down, right = (torch.arange(-(-size // step) * step).clamp(max=size - 1) for size, step in ((rows, height), (columns, width)))
    whole = values[down][:, right]
    return whole.unflatten(1, (-1, width)).unflatten(0, (-1, height)).transpose(1, 2).flatten(0, 1).flatten(1)


def problem_of_storage(found, storage):
    """Why a weight of these values cannot be kept as an engine declares it."""
    height, width = (storage["block_out"], storage["block_in"]) if storage["scale_bits"] else found.shape
    blocks = blocks_of(found, height, width)
    needed = -(-(found.numel() * storage["bits"] + len(blocks) * (storage["scale_bits"] + storage["zero_bits"])) // 8)
    if storage["bytes"] < needed:
        return f"storage() declares {storage['bytes']:,} bytes, and {needed:,} for its values, scales and zero points"
    if 1 << storage["bits"] < blocks.shape[1]:
        different = blocks.sort(1).values.diff(dim=1).ne(0).sum(1) + 1
        most = int(different.argmax())
        if different[most] > 1 << storage["bits"]:
            per_row = -(-found.shape[1] // width)
            return (f"storage() declares {storage['bits']} bits a value, and the block of row {most // per_row * height} and column "
                    f"{most % per_row * width} holds {int(different[most]):,} different values")
    return ""


def weights_asked(folder):
    """The weights that an engine is asked for. A tied head is one: an engine may keep it in another format."""
    weights = Weights(folder)
    if weights.method and not weights.reader:
        raise of_kind("bad_input", ValueError(
            f"{folder}/config.json: quantization_config: quant_method is {weights.method!r}, wanted one of {', '.join(METHODS)}: what "
            "other stored weights stand for is not known, so nothing could be held to it"))
    asked = [{"name": name, "shape": shape} for name in weights if len(shape := weights.shape(name)) > 1]
    table = table_of(weights)
    return asked if HEAD in weights or not table else [*asked, {"name": HEAD, "shape": weights.shape(table)}]


def judged(folder, file, name):
    """What is found of the values of one weight. problem: why they cannot be right. own: the folder stores other values, whole,
    so that nothing but the engine's word says what it keeps."""
    weights, found, storage = Weights(folder), stated(file)[name], index_of(file)[name].get("storage")
    source = name if name in weights else table_of(weights)
    wanted, own, problem = weights[source].float(), False, ""
    if not found.isfinite().all():
        problem = "holds NaN or Inf"
    elif weights.is_stored(source):
        problem = problem_of_stored(found, wanted)
    elif own := not torch.equal(found, wanted):
        error = float((found - wanted).norm() / wanted.norm())
        problem = "" if error < 1 else f"is no nearer to the weight than zeros are: off by {error:.0%} of its root mean square"
    if storage and not problem:
        problem = problem_of_storage(found.flatten(1), storage)
    return {"problem": f"dequantised('{name}'): {problem}" if problem else "", "own": own}


def stated_values(folder, file, weight):
    """The fields of ValuesTold (harness/wire/value_calls.h): of the weights to ask for without a file, else of one weight."""
    return judged(folder, file, weight) if file else {"weights": weights_asked(folder)}
