"""The values that an engine says its weights stand for (--truth dequantised): a file of fp32 numbers, one weight behind
another, and FILE.index, a line of JSON for each: its name, shape and offset in bytes.
"""

import json
import pathlib

import numpy
import torch
from safetensors.torch import load_file
from stored_weights import files_of, stored_in

HEAD = "lm_head.weight"
ROUNDED = (torch.float32, torch.bfloat16, torch.float16)  # an engine may bring weights to these on their way to a product


def weights_of_folder(folder):
    """All tensors of a folder by name, quantised ones in fp32."""
    if stored := stored_in(folder):
        return stored.dequantised()
    return {name: tensor for file in files_of(pathlib.Path(folder)) for name, tensor in load_file(file).items()}


def with_head(weights):
    """Adds the LM head of a tied model, which an engine may keep in another format than the embedding."""
    tied = [name for name in weights if name.endswith("embed_tokens.weight")]
    return weights if HEAD in weights or len(tied) != 1 else weights | {HEAD: weights[tied[0]]}


def stated(file):
    """{name: fp32 tensor} of a file."""
    values = {}
    for line in pathlib.Path(f"{file}.index").read_text().splitlines():
        entry = json.loads(line)
        array = numpy.memmap(file, numpy.float32, "c", entry["offset"], tuple(entry["shape"]))
        values[entry["name"]] = torch.from_numpy(array)
    return values


def weights_by(folder, file, config):
    """weights_of_folder() with the values of a file in their places. A head that differs from the embedding is no longer
    tied in `config`."""
    weights, found = weights_of_folder(folder), stated(file)
    whole = with_head(weights | found)
    tied = [name for name in whole if name.endswith("embed_tokens.weight")]
    if HEAD in found and len(tied) == 1 and not torch.equal(whole[HEAD].float(), whole[tied[0]].float()):
        for part in (config, config.get_text_config()):
            part.tie_word_embeddings = False
        return whole
    return weights | {name: value for name, value in found.items() if name in weights}


def difference(name, found, wanted):
    """Where values differ most from what a checkpoint's weight stands for; "" where they are it, or it rounded."""
    if any(torch.equal(found, wanted.to(kind).float()) for kind in ROUNDED):
        return ""
    off = (found - wanted.float()).abs()
    at = numpy.unravel_index(int(off.argmax()), tuple(found.shape))
    place = ", ".join(str(int(i)) for i in at)
    return (f"dequantised('{name}'): {int((off > 0).sum()):,} of {off.numel():,} values are not what the checkpoint's stored ones stand "
            f"for, nor these in bf16 or fp16: [{place}] is {float(found[at]):.7g}, wanted {float(wanted[at]):.7g}")


def stated_values(folder, file):
    """Without a file, the weights that an engine is asked for. With one: why it cannot be right, "" where nothing was
    found; `own` where the folder stores its weights whole, so that nothing but the engine's answers says what it keeps."""
    weights, own = with_head(weights_of_folder(folder)), stored_in(folder) is None
    if not file:
        asked = [{"name": name, "shape": list(tensor.shape)} for name, tensor in weights.items() if tensor.dim() > 1]
        return {"weights": asked, "own": own}
    for name, found in stated(file).items():
        if not found.isfinite().all():
            return {"problem": f"dequantised('{name}'): holds NaN or Inf", "own": own}
        if problem := "" if own else difference(name, found, weights[name]):
            return {"problem": problem, "own": own}
    return {"own": own}
