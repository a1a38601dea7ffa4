"""A base class that makes a decoder of mkbench (decoder.py) from a step; copy this file beside yours:

    from step_decoder import StepDecoder

    class Decoder(StepDecoder):
        def load(self, model, tensors): ...
        def step(self, token, position): ...

step() embeds `token`, an int64 tensor [1] on the device, writes the KV row of `position`, and returns the id of the
largest logit, the lowest id among equals: an int, or a tensor of one integer. The rows below `position` stand, the
others count as never written. Prefill, forced and late ids, rewind and progress come from this class.
step(self, token, position, logits) shows its logits: float32 [vocab] on the device, None where the time is reported. A class may
also have prefill_rows(self, tokens), which writes rows 0 .. n - 1 of int64 [n] in one call; and show(self, layer,
position=None), by which a report names the layer where an error begins: between steps, the hidden state after `layer` of
the last step, [hidden], or with a position its KV row, K after RoPE, then V: [2, kv_heads, head_dim].
"""

import inspect
import json

import torch
from safetensors import safe_open


class Unfit(ValueError):
    """load() has no code for the model: the verdict is BAD_INPUT."""

    mkbench_kind = "bad_input"


class Tensors(dict):
    """The tensors of a snapshot by name, on the device."""

    def __init__(self, folder, device):
        names = {"model.safetensors"}  # what mkbench's loader reads; a folder may hold other files
        if not (folder / "model.safetensors").exists():
            names = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
        for name in sorted(names):
            with safe_open(folder / name, framework="pt") as shard:
                self.update({name: shard.get_tensor(name).to(device) for name in shard.keys()})
        # A tied model has no LM head of its own.
        self.setdefault("lm_head.weight", self.get("model.embed_tokens.weight"))

    def find(self, name, *shape):
        """The tensor, which must be bf16 of this shape."""
        found = self.get(name)
        if found is None:
            raise Unfit(f"{name}: there is no such tensor")
        if tuple(found.shape) != shape or found.dtype != torch.bfloat16:
            raise Unfit(f"{name}: found {list(found.shape)} {found.dtype}, wanted {list(shape)} bf16")
        return found


class StepDecoder:
    position = 0  # KV rows written

    def load(self, model, tensors):
        """model: config.json as a dict. tensors: a Tensors. self.device and self.max_context, the rows that the KV
        cache must hold, are set. Raises Unfit if there is no code for the model."""
        raise NotImplementedError("load() is not written yet")

    def open(self, folder, device, max_context):
        self.device, self.max_context, self.pending = device, max_context, None
        self.model = json.loads((folder / "config.json").read_text())
        self.load(self.model, Tensors(folder, device))
        self.shows = "logits" in inspect.signature(self.step).parameters
        if not self.shows:
            self.decode = self.decode_ids

    def prefill(self, ids):
        self.position, rows = 0, ids[:-1]
        if hasattr(self, "prefill_rows") and len(rows) > 0:
            self.prefill_rows(rows)
        else:
            self.decode(len(rows), rows)
        self.position, self.pending = len(rows), ids[-1:]

    def decode(self, n, forced=None, logits=None):
        ids = []
        for t in range(n):
            token = self.pending if forced is None else forced[t:t + 1]
            shown = () if not self.shows else (None,) if logits is None else (logits[t],)
            found = torch.as_tensor(self.step(token, self.position, *shown), device=self.device)
            self.pending = found.reshape(1).to(torch.int64, copy=True)  # a step may return one buffer every time
            self.position += 1
            ids.append(self.pending)
        return torch.cat(ids) if ids else ids

    def decode_ids(self, n, forced=None):
        return StepDecoder.decode(self, n, forced)

    def set_pending(self, id_):
        self.pending = torch.tensor([id_], device=self.device)

    def rewind(self, position):
        self.position = position
