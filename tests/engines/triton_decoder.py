"""Qwen3 in Triton behind references/decoder.py: six kernels, on a card one CUDA graph a token.

Activations stay in fp32 between the kernels, weights and KV rows are bf16. prefill() goes token by token. Without a GPU
Triton's interpreter runs the same kernels, which is for tests of this file alone.
"""

import json
import os

import torch

ON_CARD = torch.cuda.is_available()
if not ON_CARD:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from safetensors import safe_open  # noqa: E402

# The interpreter takes a millisecond a program, whatever its size.
SPLITS = 32 if ON_CARD else 2  # of the KV rows of a head
KV_ROWS = 64  # that a program of attention takes at a time
ROWS, COLUMNS = (8, 512) if ON_CARD else (1024, 1024)  # of a matrix, a program at a time
VOCAB_BLOCK = 1024
PLAIN, NORMED, GATED = 0, 1, 2  # what becomes of the input of a matrix


@triton.jit
def embed(ids, table, h, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids)
    tl.store(h + i, tl.load(table + row * width + i, mask=i < width).to(tl.float32), mask=i < width)


@triton.jit
def matvec(x, norm, matrix, out, rows, eps, columns: tl.constexpr, MODE: tl.constexpr, ADD: tl.constexpr,
           ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out[rows] (+)= matrix[rows, columns] times x, or RMSNorm(x), or silu(x[:columns]) * x[columns:]."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros([ROWS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    for begin in range(0, columns, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        inside = column < columns
        value = tl.load(x + column, mask=inside, other=0.0)
        if MODE == 1:
            squares += value * value
            value *= tl.load(norm + column, mask=inside, other=0.0).to(tl.float32)
        if MODE == 2:
            value = value / (1 + tl.exp(-value)) * tl.load(x + columns + column, mask=inside, other=0.0)
        weights = tl.load(matrix + row[:, None].to(tl.int64) * columns + column[None, :],
                          mask=(row < rows)[:, None] & inside[None, :], other=0.0).to(tl.float32)
        sums += tl.sum(weights * value[None, :], 1)
    if MODE == 1:
        sums *= tl.rsqrt(tl.sum(squares, 0) / columns + eps)
    if ADD:
        sums += tl.load(out + row, mask=row < rows, other=0.0)
    tl.store(out + row, sums, mask=row < rows)


@triton.jit
def place_heads(qkv, q_norm, k_norm, inverse, position, k_cache, v_cache, context, eps, HEADS: tl.constexpr,
                KV_HEADS: tl.constexpr, DIM: tl.constexpr):
    """A head of q, k or v: norm and RoPE in place for q, into the cache [kv_heads, context, DIM] for k and v."""
    head = tl.program_id(0)
    half = tl.arange(0, DIM // 2)
    low = tl.load(qkv + head * DIM + half)
    high = tl.load(qkv + head * DIM + DIM // 2 + half)
    at = tl.load(position)
    if head < HEADS + KV_HEADS:
        scale = tl.rsqrt((tl.sum(low * low, 0) + tl.sum(high * high, 0)) / DIM + eps)
        norm = k_norm
        if head < HEADS:
            norm = q_norm
        low *= scale * tl.load(norm + half).to(tl.float32)
        high *= scale * tl.load(norm + DIM // 2 + half).to(tl.float32)
        angle = at.to(tl.float32) * tl.load(inverse + half)
        cos, sin = tl.cos(angle), tl.sin(angle)
        turned = low * cos - high * sin
        high = high * cos + low * sin
        low = turned
    if head < HEADS:
        tl.store(qkv + head * DIM + half, low)
        tl.store(qkv + head * DIM + DIM // 2 + half, high)
    else:
        kv_head = (head - HEADS) % KV_HEADS
        cache = v_cache
        if head < HEADS + KV_HEADS:
            cache = k_cache
        row = cache + (kv_head.to(tl.int64) * context + at) * DIM
        tl.store(row + half, low.to(tl.bfloat16))
        tl.store(row + DIM // 2 + half, high.to(tl.bfloat16))


@triton.jit
def attend(qkv, k_cache, v_cache, position, parts, sums, context, scale, GROUP: tl.constexpr, DIM: tl.constexpr,
           SPLITS: tl.constexpr, KV_ROWS: tl.constexpr):
    """A head over its split of the KV rows: the weighted rows [DIM], and their greatest score and weight."""
    head, split = tl.program_id(0), tl.program_id(1)
    dim = tl.arange(0, DIM)
    query = tl.load(qkv + head * DIM + dim) * scale
    seen = tl.load(position) + 1
    share = tl.cdiv(tl.cdiv(seen, SPLITS), KV_ROWS) * KV_ROWS
    cache = (head // GROUP).to(tl.int64) * context * DIM
    most = float("-inf")
    weight = 0.0
    mixed = tl.zeros([DIM], tl.float32)
    begin = split * share
    end = tl.minimum(begin + share, seen)
    while begin < end:
        row = begin + tl.arange(0, KV_ROWS)
        there = row < seen
        place = cache + row[:, None].to(tl.int64) * DIM + dim[None, :]
        keys = tl.load(k_cache + place, mask=there[:, None], other=0.0).to(tl.float32)
        score = tl.where(there, tl.sum(keys * query[None, :], 1), float("-inf"))
        highest = tl.maximum(most, tl.max(score, 0))
        share_of_row = tl.exp(score - highest)
        before = tl.exp(most - highest)
        values = tl.load(v_cache + place, mask=there[:, None], other=0.0).to(tl.float32)
        mixed = mixed * before + tl.sum(share_of_row[:, None] * values, 0)
        weight = weight * before + tl.sum(share_of_row, 0)
        most = highest
        begin += KV_ROWS
    part = head * SPLITS + split
    tl.store(parts + part * DIM + dim, mixed)
    tl.store(sums + 2 * part, most)
    tl.store(sums + 2 * part + 1, weight)


@triton.jit
def join(parts, sums, out, DIM: tl.constexpr, SPLITS: tl.constexpr):
    """The splits of a head, weighted; splits without rows have the weight 0."""
    head = tl.program_id(0)
    dim = tl.arange(0, DIM)
    part = head * SPLITS + tl.arange(0, SPLITS)
    most = tl.load(sums + 2 * part)
    share = tl.exp(most - tl.max(most, 0))
    weight = tl.sum(share * tl.load(sums + 2 * part + 1), 0)
    mixed = tl.load(parts + part[:, None] * DIM + dim[None, :])
    tl.store(out + head * DIM + dim, tl.sum(mixed * share[:, None], 0) / weight)


@triton.jit
def best_of_block(logits, values, places, vocab, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    i = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + i, mask=i < vocab, other=float("-inf"))
    most = tl.max(z, 0)
    tl.store(values + block, most)
    tl.store(places + block, tl.min(tl.where((z == most) & (i < vocab), i, vocab), 0))


class Decoder:
    name = "triton"
    precision = "fp32-accumulate"

    def open(self, folder, device, max_context):
        self.config = config = json.loads((folder / "config.json").read_text())
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim, self.hidden, self.vocab = config["head_dim"], config["hidden_size"], config["vocab_size"]
        self.eps, self.context, self.position = config["rms_norm_eps"], max_context, 0
        self.load(folder, device)
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        steps = torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim
        self.inverse = (1.0 / theta ** steps).to(device)

        def empty(*shape, dtype=torch.float32):
            return torch.zeros(shape, dtype=dtype, device=device)
        self.caches = [empty(2, self.kv_heads, max_context, self.dim, dtype=torch.bfloat16) for _ in self.layers]
        self.id, self.place = empty(1, dtype=torch.int64), empty(1, dtype=torch.int64)
        self.h, self.logits = empty(self.hidden), empty(self.vocab)
        self.qkv = empty((self.heads + 2 * self.kv_heads) * self.dim)
        self.parts, self.sums = empty(self.heads, SPLITS, self.dim), empty(self.heads, SPLITS, 2)
        self.mixed, self.both = empty(self.heads * self.dim), empty(2 * config["intermediate_size"])
        blocks = triton.cdiv(self.vocab, VOCAB_BLOCK)
        self.values, self.places = empty(blocks), empty(blocks, dtype=torch.int64)
        self.graph = self.capture() if device.type == "cuda" else None

    def load(self, folder, device):
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as shard:
                tensors.update({name: shard.get_tensor(name) for name in shard.keys()})

        # Joined before they are on the card, whose allocator would keep the room of the parts.
        def joined(layer, names):
            return torch.cat([tensors.pop(f"{layer}.{name}.weight") for name in names]).to(device)
        self.layers = []
        for number in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            self.layers.append({
                "qkv": joined(layer, [f"self_attn.{n}_proj" for n in "qkv"]),
                "gate_up": joined(layer, ["mlp.gate_proj", "mlp.up_proj"]),
                **{n.split(".")[-1]: tensors[f"{layer}.{n}.weight"].to(device) for n in (
                    "input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm",
                    "self_attn.o_proj", "mlp.down_proj")}})
        self.embedding = tensors["model.embed_tokens.weight"].to(device)
        self.norm = tensors["model.norm.weight"].to(device)
        self.head = tensors["lm_head.weight"].to(device) if "lm_head.weight" in tensors else self.embedding

    def multiply(self, x, matrix, out, mode=PLAIN, norm=None, add=False):
        rows, columns = matrix.shape
        matvec[(triton.cdiv(rows, ROWS),)](x, norm, matrix, out, rows, self.eps, columns=columns, MODE=mode, ADD=add,
                                           ROWS=ROWS, COLUMNS=COLUMNS)

    def issue(self):
        """One step: reads self.id at self.place, writes a KV row and self.logits, and goes on to the next."""
        embed[(triton.cdiv(self.hidden, 256),)](self.id, self.embedding, self.h, self.hidden, BLOCK=256)
        for layer, (k_cache, v_cache) in zip(self.layers, self.caches):
            self.multiply(self.h, layer["qkv"], self.qkv, NORMED, layer["input_layernorm"])
            place_heads[(self.heads + 2 * self.kv_heads,)](
                self.qkv, layer["q_norm"], layer["k_norm"], self.inverse, self.place, k_cache, v_cache, self.context,
                self.eps, HEADS=self.heads, KV_HEADS=self.kv_heads, DIM=self.dim)
            attend[(self.heads, SPLITS)](self.qkv, k_cache, v_cache, self.place, self.parts, self.sums, self.context,
                                         self.dim ** -0.5, GROUP=self.heads // self.kv_heads, DIM=self.dim,
                                         SPLITS=SPLITS, KV_ROWS=KV_ROWS)
            join[(self.heads,)](self.parts, self.sums, self.mixed, DIM=self.dim, SPLITS=SPLITS)
            self.multiply(self.mixed, layer["o_proj"], self.h, add=True)
            self.multiply(self.h, layer["gate_up"], self.both, NORMED, layer["post_attention_layernorm"])
            self.multiply(self.both, layer["down_proj"], self.h, GATED, add=True)
        self.multiply(self.h, self.head, self.logits, NORMED, self.norm)
        best_of_block[(len(self.values),)](self.logits, self.values, self.places, self.vocab, BLOCK=VOCAB_BLOCK)
        most = self.values.max()
        self.id.copy_(torch.where(self.values == most, self.places, self.vocab).min())
        self.place.add_(1)

    def capture(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.issue()  # compiles the kernels
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.issue()
        return graph

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.issue()
        self.position += 1

    def prefill(self, ids):
        self.rewind(0)
        for i in range(len(ids) - 1):
            self.id.copy_(ids[i:i + 1])
            self.step()
        self.id.copy_(ids[-1:])

    def decode(self, n, forced=None, logits=None):
        ids = torch.empty(n, dtype=torch.int64, device=self.id.device)
        for i in range(n):
            if forced is not None:
                self.id.copy_(forced[i:i + 1])
            self.step()
            ids[i:i + 1] = self.id
            if logits is not None:
                logits[i] = self.logits
        return ids

    def set_pending(self, id_):
        self.id.fill_(id_)

    def rewind(self, position):
        self.position = position
        self.place.fill_(position)
