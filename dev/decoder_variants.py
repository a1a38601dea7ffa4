"""Qwen3 in torch with selectable rounding points and order of sums: the ways in which legitimate decoders differ.

All arithmetic is fp32 on values that were rounded to bf16 (fp16) where a variant says so, as on a GPU, whose matrix units
multiply bf16 and fp16 exactly and add in fp32. A sequence runs in one pass. `faults` maps names of errors to their sizes, which
the forward pass plants; a fault that affects a single layer is planted in LATE_LAYER.
"""

import dataclasses

import torch

import scripts_path  # noqa: F401
from hf_model import exact_inv_freq

LATE_LAYER = -2


@dataclasses.dataclass(frozen=True)
class Variant:
    """Where a decoder rounds, and how it adds. The defaults are HF's eager attention in bf16."""
    residual: bool = True      # the sums of the residual stream
    norm: str = "twice"        # "twice": before and after the weight; "once": after it; "": never
    linear: bool = True        # the results of the projections, the head excepted
    rope: str = "each"         # "each": cos, sin, both products, their sum; "once": the sum alone; "": never
    scores: bool = True        # q k^T, before and after the scale
    probs: str = "after"       # softmax rounded "after" its division, "before" it (and divided last), or "": never
    attention: bool = True     # the weighted sum of V
    mlp: str = "twice"         # "twice": silu, and its product with up; "once": the product; "": never
    head: bool = False         # the logits
    cache_bits: int = 8        # significant bits of K and V; 0: fp32
    dtype: torch.dtype = torch.bfloat16  # what is rounded to, K and V excepted
    order: int = 0             # seed of the order in which a projection adds; 0: torch's order
    split: int = 1             # number of parts whose sums a projection adds
    split_rounds: bool = False  # rounds the sum of each part


HF = Variant()
TRUTH = Variant(residual=False, norm="", linear=False, rope="", scores=False, probs="", attention=False, mlp="", cache_bits=0)
# Rounds K and V alone, since the cache is bf16.
FP32_ACCUMULATE = dataclasses.replace(TRUTH, cache_bits=8)


def rounded(x, v, wanted=True):
    return x.to(v.dtype).float() if wanted else x


def significant(x, bits):
    """x rounded to `bits` significant bits (bf16 has 8, fp16 11); 0 leaves x as it is."""
    if not bits:
        return x
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(torch.ldexp(mantissa, torch.tensor(bits))), exponent - bits)


class Forward:
    """The forward pass of one checkpoint (fp32 copies of its tensors)."""

    def __init__(self, config, state):
        self.config = config
        self.state = {name: tensor.float() for name, tensor in state.items()}
        if config["tie_word_embeddings"]:
            self.state["lm_head.weight"] = self.state["model.embed_tokens.weight"]
        self.inv_freq = exact_inv_freq(config)
        self.orders = {}

    @torch.no_grad()
    def logits(self, ids, first, variant, faults=None):
        """The logits at the positions from `first` on of the sequence `ids`, [positions, vocab]."""
        v, faults = variant, faults or {}
        x = self.state["model.embed_tokens.weight"][torch.tensor(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            late = layer == self.config["num_hidden_layers"] + LATE_LAYER
            h = self.norm(x, name + "input_layernorm", v, faults)
            x = rounded(x + self.attend(h, name + "self_attn.", v, faults), v, v.residual)
            h = self.norm(x, name + "post_attention_layernorm", v, faults)
            down = self.feed_forward(h, name + "mlp.", v, faults if late else {})
            x = rounded(x + down * (1 - (faults.get("residual", 0) if late else 0)), v, v.residual)
        x = self.norm(x[first:], "model.norm", v, faults)
        return rounded(self.linear(x, "lm_head", dataclasses.replace(v, linear=False)), v, v.head)

    def norm(self, x, name, v, faults):
        eps = self.config["rms_norm_eps"] * 10 ** faults.get("eps_decades", 0)
        unit = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        weight = self.state[name + ".weight"] * (1 + (faults.get("final_norm", 0) if name == "model.norm" else 0))
        return rounded(rounded(unit, v, v.norm == "twice") * weight, v, v.norm != "")

    def linear(self, x, name, v):
        weight = self.state[name + ".weight"]
        if v.order:
            x, weight = x[:, self.order_of(x.shape[1], v.order)], weight[:, self.order_of(x.shape[1], v.order)]
        parts = [rounded(a @ b.T, v, v.split_rounds) for a, b in zip(x.chunk(v.split, 1), weight.chunk(v.split, 1))]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return rounded(total, v, v.linear)

    def order_of(self, width, seed):
        if (width, seed) not in self.orders:
            self.orders[width, seed] = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
        return self.orders[width, seed]

    def rotate(self, x, v, faults):
        """RoPE of [tokens, heads, head_dim]."""
        theta = (1 + faults.get("rope_theta", 0)) ** (-torch.arange(len(self.inv_freq)) / len(self.inv_freq))
        angles = torch.arange(x.shape[0])[:, None] * (self.inv_freq * theta)[None]
        angles = torch.cat([angles, angles], 1)[:, None]
        cos, sin = (rounded(t, v, v.rope == "each") for t in (angles.cos(), angles.sin()))
        a, b = x.chunk(2, -1)
        turned = torch.cat([-b, a], -1)
        parts = rounded(x * cos, v, v.rope == "each"), rounded(turned * sin, v, v.rope == "each")
        return rounded(sum(parts), v, v.rope != "")

    def attend(self, h, name, v, faults):
        c, tokens = self.config, h.shape[0]
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        q, k, value = (self.linear(h, name + f"{which}_proj", v) for which in "qkv")
        q = self.norm(q.view(tokens, heads, dim), name + "q_norm", v, faults)
        k = self.norm(k.view(tokens, kv_heads, dim), name + "k_norm", v, faults)
        q, k = self.rotate(q, v, faults), self.rotate(k, v, faults)
        bits = v.cache_bits - faults.get("cache_bits", 0)
        k, value = significant(k, bits), significant(value.view(tokens, kv_heads, dim), bits)
        k, value = (t.repeat_interleave(heads // kv_heads, 1).transpose(0, 1) for t in (k, value))
        scale = dim ** -0.5 * (1 + faults.get("scale", 0))
        scores = rounded(rounded(q.transpose(0, 1) @ k.transpose(1, 2), v, v.scores) * scale, v, v.scores)
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
        if faults.get("newest"):
            scores.diagonal(dim1=1, dim2=2).add_(torch.log1p(torch.tensor(-faults["newest"])))
        if v.probs == "before":
            weights = rounded((scores - scores.amax(-1, keepdim=True)).exp(), v)
            out = (weights @ value) / weights.sum(-1, keepdim=True)
        else:
            out = rounded(scores.softmax(-1), v, v.probs == "after") @ value
        if faults.get("one_head"):
            out[0] *= 1 - faults["one_head"]
        out = rounded(out, v, v.attention).transpose(0, 1).reshape(tokens, heads * dim)
        return self.linear(out, name + "o_proj", v)

    def feed_forward(self, h, name, v, faults):
        gate, up = self.linear(h, name + "gate_proj", v), self.linear(h, name + "up_proj", v)
        product = rounded(rounded(torch.nn.functional.silu(gate), v, v.mlp == "twice") * up, v, v.mlp != "")
        if faults.get("columns"):
            product[:, -int(faults["columns"]):] = 0
        return self.linear(product, name + "down_proj", v)


def one_at_a_time():
    """Variants of HF that differ in one place, by name."""
    places = {"residual": False, "norm": "once", "linear": False, "rope": "once", "scores": False, "probs": "before",
              "attention": False, "mlp": "once", "head": True}
    named = {f"{place}={value or 'fp32'}": dataclasses.replace(HF, **{place: value}) for place, value in places.items()}
    named["probs=fp32"] = dataclasses.replace(HF, probs="")
    named["rope=fp32"] = dataclasses.replace(HF, rope="")
    named["flash: scores, probs"] = dataclasses.replace(HF, scores=False, probs="before")
    return named


def legitimate(precision):
    """{name: variant} of a precision class: what decoders of that class may do."""
    if precision == "fp16":  # those of bf16, which round to fp16 at the same places
        return {name: in_fp16(v) for name, v in legitimate("bf16").items()}
    if precision == "fp32-accumulate":
        base = FP32_ACCUMULATE
        named = {"K and V alone": base}
        # Each of these places holds an operand of the next product, which matrix units take in bf16. A decoder
        # that rounds scores or logits, or adds in bf16, is not of this class.
        for place, value in {"attention": True, "mlp": "once", "rope": "once", "probs": "before"}.items():
            named[f"{place} rounded"] = dataclasses.replace(base, **{place: value})
        orders = 8
    else:
        base, named, orders = HF, {"HF eager": HF, **one_at_a_time()}, 4
        for seed in range(8):
            named[f"mixed {seed + 1}"] = mixed(seed)
        for parts in (2, 4, 8):
            named[f"split-K {parts}, parts in bf16"] = dataclasses.replace(base, split=parts, split_rounds=True)
    for parts in (2, 4, 8):
        named[f"split-K {parts}"] = dataclasses.replace(base, split=parts)
    for seed in range(1, orders + 1):
        named[f"order {seed}"] = dataclasses.replace(base, order=seed)
    return named


def in_fp16(variant):
    return dataclasses.replace(variant, dtype=torch.float16, cache_bits=11)


def mixed(seed):
    """A variant that has each of one_at_a_time()'s first nine changes with a probability of 1/2."""
    coins = torch.randint(0, 2, (9,), generator=torch.Generator().manual_seed(1000 + seed)).tolist()
    changed = [v for v, coin in zip(list(one_at_a_time().values())[:9], coins) if coin]
    fields = {f.name: getattr(v, f.name) for v in changed for f in dataclasses.fields(v) if getattr(v, f.name) != getattr(HF, f.name)}
    return dataclasses.replace(HF, order=seed + 1, **fields)
