"""A Qwen3 model in HF transformers, built from plain tensors and decoded step by step, for the other scripts.

The decoder runs exactly what every engine of mkbench runs: prefill of all ids but the last in chunks
of at most 512 rows, then steps of one row over the same cache, greedy, lowest index among equals.
"""

import hashlib
import json
import math
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from safetensors.torch import load_file
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as hf_logging

from checkpoint_format import tensor_names

hf_logging.set_verbosity_error()

PREFILL_CHUNK = 512


def tensor_bytes(tensor):
    """The raw little-endian bf16 bytes of a tensor."""
    assert tensor.dtype == torch.bfloat16, tensor.dtype
    return tensor.contiguous().view(torch.uint16).numpy()


def weights_sha256(state, layers, tied):
    """The hash that identifies a model: sha256 over all tensors' bytes in tensor_names() order."""
    digest = hashlib.sha256()
    for name in tensor_names(layers, tied):
        digest.update(tensor_bytes(state[name]))
    return digest.hexdigest()


def read_folder(folder):
    """config.json as a dict and the bf16 tensors of a single-file checkpoint."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    return config, load_file(folder / "model.safetensors")


def rope_theta(config):
    """rope_theta wherever transformers 4.x or 5.x wrote it; two different values are an error."""
    found = [
        config.get("rope_parameters", {}).get("rope_theta"),
        config.get("rope_theta"),
        (config.get("rope_scaling") or {}).get("rope_theta"),
    ]
    found = {float(x) for x in found if x is not None}
    if len(found) != 1:
        raise ValueError(f"rope_theta: found {sorted(found)}, wanted exactly one value")
    return found.pop()


def exact_inv_freq(config):
    """The fp32 inverse frequencies, in the one order of operations that all of mkbench uses."""
    dim = config["head_dim"]
    return 1.0 / (rope_theta(config) ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))


def build(config, state, dtype, device="cpu", attention="eager"):
    """An HF model in `dtype` with the given tensors. Rotary inverse frequencies stay fp32, asserted."""
    hf_config = Qwen3Config.from_dict({k: v for k, v in config.items() if k not in ("dtype", "torch_dtype")})
    hf_config._attn_implementation = attention
    with torch.device("meta"):
        model = Qwen3ForCausalLM(hf_config)
    tensors = {name: t.to(device=device, dtype=dtype) for name, t in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    tied = config["tie_word_embeddings"]
    if unexpected or set(missing) - ({"lm_head.weight"} if tied else set()):
        raise ValueError(f"tensors: missing {missing}, unexpected {unexpected}")
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    # The table was made on the meta device with the rest, and a cast of the whole model would make it bf16.
    model.model.rotary_emb = type(model.model.rotary_emb)(hf_config).to(device)
    check_rotary(model, config)
    return model.requires_grad_(False).eval()


def check_rotary(model, config):
    """Raises unless the model rotates by the fp32 table of exact_inv_freq()."""
    table = model.model.rotary_emb.inv_freq
    if table.dtype != torch.float32 or not torch.equal(table.cpu(), exact_inv_freq(config)):
        raise ValueError("rotary inv_freq: not the fp32 table of this config's theta and head_dim")


class Decoder:
    """Decoding of sequences of one length side by side, one row of each at a time."""

    def __init__(self, model):
        self.model = model
        self.device = model.lm_head.weight.device
        # The denominator of error ratios is the bf16 model with only its last matmul in fp32.
        self.head_fp32 = model.lm_head.weight.float()
        self.reset()

    def reset(self):
        """Forgets the sequences."""
        self.cache = DynamicCache()
        self.position = 0

    @torch.no_grad()
    def forward(self, rows):
        """Appends a list of ids to each sequence, all of one length; the normed hidden states, [rows, ids, hidden]."""
        ids = torch.tensor(rows, device=self.device)
        positions = torch.arange(self.position, self.position + ids.shape[1], device=self.device)
        out = self.model.model(
            input_ids=ids, position_ids=positions[None], past_key_values=self.cache, use_cache=True
        )
        self.position += ids.shape[1]
        return out.last_hidden_state

    def prefill(self, prompts):
        """KV rows for all ids of each prompt but the last, which the first step takes."""
        for begin in range(0, len(prompts[0]) - 1, PREFILL_CHUNK):
            end = min(begin + PREFILL_CHUNK, len(prompts[0]) - 1)
            self.forward([ids[begin:end] for ids in prompts])

    @torch.no_grad()
    def step(self, tokens):
        """Appends one id to each sequence: (the model's own logits as fp32, logits through an fp32 head), both
        [sequences, vocab] on the model's device."""
        hidden = self.forward([[token] for token in tokens])
        logits = self.model.lm_head(hidden)[:, 0].float()
        return logits, hidden[:, 0].float() @ self.head_fp32.T


def argmax_lowest(logits):
    """The lowest index among the largest values (torch.argmax does not promise which)."""
    return int((logits == logits.max()).nonzero()[0])


def greedy_together(decoder, prompts, n):
    """n greedy ids after each of several prompts of one length: a list of (ids, fp32 logits [n, vocab])."""
    decoder.reset()
    decoder.prefill(prompts)
    paths, rows, tokens = [[] for _ in prompts], [], [p[-1] for p in prompts]
    for _ in range(n):
        rows.append(decoder.step(tokens)[0])
        tokens = [argmax_lowest(logits) for logits in rows[-1]]
        for path, token in zip(paths, tokens):
            path.append(token)
    return [(path, torch.stack([r[i] for r in rows])) for i, path in enumerate(paths)]


def greedy(decoder, prompt, n):
    """n greedy ids after `prompt` and the fp32 logits of each step, [n, vocab]."""
    return greedy_together(decoder, [prompt], n)[0]


def teacher_forced(decoder, prompts, paths):
    """The steps of greedy_together() with the ids of `paths` as inputs instead of the model's own: a list of
    (the model's logits, logits through an fp32 head), both [n, vocab]."""
    decoder.reset()
    decoder.prefill(prompts)
    inputs = [p[-1:] + path[:-1] for p, path in zip(prompts, paths)]
    steps = [decoder.step(list(tokens)) for tokens in zip(*inputs)]
    return [tuple(torch.stack([s[which][i] for s in steps]) for which in (0, 1)) for i in range(len(prompts))]


def bf16_step(x):
    """The distance between bf16 neighbours at |x|: 2^(exponent - 7)."""
    return math.ldexp(1.0, math.frexp(x)[1] - 8) if x > 0 else 0.0


def pairwise_error(truth, other, top=32):
    """Largest |(other_i - other_j) - (truth_i - truth_j)| over truth's top ids; rows are steps, [n]."""
    ids = truth.topk(min(top, truth.shape[-1]), -1).indices
    error = other.gather(-1, ids).double() - truth.gather(-1, ids).double()
    return error.max(-1).values - error.min(-1).values
