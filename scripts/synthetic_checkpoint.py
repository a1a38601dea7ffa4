#!/usr/bin/env python3
"""The analytic checkpoint in Python: makes the bf16 bytes that references/synthetic_weights.cpp makes.

usage: synthetic_checkpoint.py --hash SET     compares with references/data/synthetic/hashes.json
       synthetic_checkpoint.py --check SET    runs HF transformers in fp32 and bf16 against the closed form

Sets: none, short, deep, far, early, late. Every element is

    bf16( float(scale) * float(h - 127.5) + float(plant) )      product and sum rounded separately

h = byte (i mod 8), little-endian, of splitmix64((tensor number << 40) + i / 8) at flat index i.
Tensors are numbered 1 embedding, then 11 a layer (checkpoint_format.LAYER_TENSORS), last the final norm, and
hashed in that order. scale and plant are doubles, computed by the expressions below in exactly this
order of operations with the C library's exp, cos, sin, pow and sqrt (math, never numpy, whose SIMD
versions may differ in the last bit), then rounded once to float.
"""

import argparse
import hashlib
import json
import math
import time

import numpy as np

import checkpoint_format

# references/synthetic_weights.cpp has the meaning of each constant, under the same name, and the reasons.
HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 1024, 3072, 28, 16, 8, 128, 151936
THETA, STATES = 1e6, 1 << 17
CODE, SLOT_A, SLOT_B = 480, 1, 481
UNIT, CONST = 1.0 / 32, 8.0
SIGMA_ATTENTION, SIGMA_MLP, SIGMA_EMBED = 0.08, 0.06, 0.125
DEVIATION, NORM_NOISE, PROJECTION_NOISE = 73.9, 0.07, 0.03
WAVE_NOISE, SIGN_NOISE, SLOT_COLUMN_NOISE, PLANTED_UNIT_NOISE = 0.13, 0.03, 0.3, 0.1
ATTENTION_RMS, UNIT_RMS = 0.7, 0.55
PLANTED_KV_HEADS, PLANTED_HEADS, SIGNS_PER_HEAD, FREQUENCIES = 4, 8, 120, 20
PLANTED_NORM, ORDINARY_NORM = 2.0, 1.25
SWITCH, GAIN = 0.5, 8.0
MULTIPLIER, OFFSET = 100003, 777
CHUNK_ROWS = 8192

LAGS = {
    "none": {},
    "short": {4: 1, 12: 3, 20: 7},
    "deep": {4: 1, 12: 257, 20: 1500},
    "far": {4: 1, 12: 4000, 20: 26000},
    "early": {1: 2, 8: 5, 16: 3},
    "late": {6: 4, 15: 1, 25: 6},
}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "dtype": "bfloat16",
    "eos_token_id": 151645,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INTER,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
    "tie_word_embeddings": True,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}


def lfsr_step(s):
    """L: one step of the 17-bit LFSR; ints or integer arrays."""
    return (s >> 1) ^ (0x10004 * (s & 1))


def token(state):
    """The id of a state (or of an array of states)."""
    return (state * MULTIPLIER + OFFSET) % VOCAB


def states_of_ids():
    """The state of every id, -1 where it has none."""
    table = np.full(VOCAB, -1, np.int64)
    table[token(np.arange(STATES, dtype=np.int64))] = np.arange(STATES)
    return table


def prompt(depth, seed):
    """depth + 1 ids: id i is the token of state splitmix64(seed + i) mod 2^17."""
    draws = checkpoint_format.splitmix64(np.uint64(seed) + np.arange(depth + 1, dtype=np.uint64))
    return [int(token(int(d) % STATES)) for d in draws]


def continuation(ids, lagset, n):
    """The n ids after `ids`, straight from P_l(t) = P_(l-1)(t) xor P_(l-1)(t - lag): the closed form."""
    table, lags = states_of_ids(), LAGS[lagset]
    states = [int(table[i]) for i in ids]
    reach = sum(lags.values())
    if len(states) <= reach or min(states) < 0:
        raise ValueError(f"synthetic:{lagset}: the prompt needs more than {reach} ids, all with states")
    for _ in range(n):
        p = np.array(states[len(states) - reach - 1 :])
        for layer in sorted(lags):
            p = p[lags[layer] :] ^ p[: len(p) - lags[layer]]
        states.append(int(lfsr_step(p[-1])))
    return [int(token(s)) for s in states[len(ids) :]]


def levels(tensor, begin, end):
    """h of the flat indices [begin, end); both are multiples of 8."""
    words = np.arange(begin // 8, end // 8, dtype=np.uint64) + np.uint64(tensor << 40)
    return checkpoint_format.splitmix64(words).astype("<u8").view(np.uint8)


def to_bf16(x):
    """Rounds fp32 to the bits of bf16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


class Tensor:
    """One tensor: noise scaled by blocks, and planted values; written in chunks of rows."""

    def __init__(self, number, rows, cols, factor):
        self.number, self.rows, self.cols = number, rows, cols
        self.blocks = [(slice(0, rows), slice(0, cols), factor)]  # later blocks win
        self.planted = []  # (rows, cols, values, set): arrays of indices and doubles
        self.base = 0.0

    def noise(self, rows, cols, factor):
        """Gives a block noise of deviation `factor`."""
        self.blocks.append((rows, cols, factor))

    def add(self, rows, cols, values):
        """Plants values (doubles) on top of the noise."""
        rows, cols, values = np.broadcast_arrays(np.atleast_1d(rows), cols, np.asarray(values, np.float64))
        self.planted.append((rows, cols, values, False))

    def set(self, rows, cols, values):
        """Plants values without noise."""
        self.add(rows, cols, values)
        self.planted[-1] = self.planted[-1][:3] + (True,)

    def chunk(self, begin, end):
        """Rows [begin, end) as bf16 bits."""
        scale = np.empty((end - begin, self.cols), np.float32)
        plant = np.full((end - begin, self.cols), np.float32(self.base))
        for rows, cols, factor in self.blocks:
            first, last = max(rows.start, begin), min(rows.stop, end)
            if first < last:
                scale[first - begin : last - begin, cols] = np.float32(factor / DEVIATION)
        for rows, cols, values, exact in self.planted:
            here = (rows >= begin) & (rows < end)
            at = (rows[here] - begin, cols[here])
            plant[at] = values[here].astype(np.float32)
            if exact:
                scale[at] = 0
        h = levels(self.number, begin * self.cols, end * self.cols).astype(np.float32)
        product = scale * (h - np.float32(127.5)).reshape(scale.shape)
        return to_bf16(product + plant)

    def bits(self):
        """All rows as bf16 bits, [rows, cols]."""
        out = np.empty((self.rows, self.cols), np.uint16)
        for begin in range(0, self.rows, CHUNK_ROWS):
            end = min(begin + CHUNK_ROWS, self.rows)
            out[begin:end] = self.chunk(begin, end)
        return out


def embedding():
    """The embedding: codewords of the states, noise signs for ids without a state, the constant channel."""
    t = Tensor(1, VOCAB, HIDDEN, SIGMA_EMBED * UNIT)
    states = states_of_ids()
    ids = np.arange(VOCAB)
    t.set(ids, 0, UNIT * CONST)
    without = ids[states < 0]
    flat = without[:, None] * HIDDEN + SLOT_A + np.arange(CODE)
    words = checkpoint_format.splitmix64((flat >> 3).astype(np.uint64) + np.uint64(1 << 40))
    own = (words >> (8 * (flat & 7)).astype(np.uint64)) & np.uint64(0xFF)
    s = states.copy()
    for i in range(CODE):
        negative = (s & 1).astype(bool)
        negative[without] = own[:, i] < 128
        t.add(ids, SLOT_A + i, np.where(negative, -UNIT, UNIT))
        s = lfsr_step(s)
    return t


def norm(number):
    """The weights of an RMSNorm over the hidden state: 1 and noise."""
    t = Tensor(number, 1, HIDDEN, NORM_NOISE)
    t.base = 1.0
    return t


def stored(t):
    """A vector's values as the checkpoint holds them, as doubles."""
    return (t.bits()[0].astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def waves(lag):
    """The vectors that planted query and key heads take from the constant channel."""
    energy = [math.exp(-2.0 * i / 10.0) for i in range(FREQUENCIES)]
    total = 0.0
    for e in energy:
        total += e
    query, key = np.zeros(HEAD_DIM), np.zeros(HEAD_DIM)
    for i in range(FREQUENCIES):
        amplitude = math.sqrt(energy[i] / total * HEAD_DIM)
        angle = lag * math.pow(THETA, -i / 64.0)
        query[i] = amplitude
        key[i] = amplitude * math.cos(angle)
        key[i + HEAD_DIM // 2] = amplitude * math.sin(angle)
    return query, key


def attention(number, lag, n1, rms1):
    """q, k, v, o projections and q, k norms of one layer."""
    q = Tensor(number, HEADS * HEAD_DIM, HIDDEN, PROJECTION_NOISE)
    k = Tensor(number + 1, KV_HEADS * HEAD_DIM, HIDDEN, PROJECTION_NOISE)
    v = Tensor(number + 2, KV_HEADS * HEAD_DIM, HIDDEN, PROJECTION_NOISE)
    factor = UNIT * SIGMA_ATTENTION / (math.sqrt(2048.0) * ATTENTION_RMS)
    o = Tensor(number + 3, HIDDEN, HEADS * HEAD_DIM, factor)
    norms = [Tensor(number + 4 + i, 1, HEAD_DIM, 0.0) for i in range(2)]
    for t in norms:
        t.base = PLANTED_NORM if lag else ORDINARY_NORM
    if lag:
        for t, wave, heads in zip((q, k), waves(lag), (PLANTED_HEADS, PLANTED_KV_HEADS)):
            rows = np.arange(heads * HEAD_DIM)
            t.noise(slice(0, heads * HEAD_DIM), slice(0, HIDDEN), PROJECTION_NOISE * WAVE_NOISE)
            t.set(rows, 0, wave[rows % HEAD_DIM] / n1[0])
        j = np.arange(SIGNS_PER_HEAD)
        for head in range(PLANTED_KV_HEADS):
            first, col = head * HEAD_DIM, SLOT_A + head * SIGNS_PER_HEAD
            v.noise(slice(first, first + SIGNS_PER_HEAD), slice(0, HIDDEN), PROJECTION_NOISE * SIGN_NOISE)
            v.add(first + j, col + j, 1 / n1[col + j])
        for head in range(PLANTED_HEADS):
            first = head * HEAD_DIM
            row = SLOT_B + head // (HEADS // KV_HEADS) * SIGNS_PER_HEAD
            o.noise(slice(0, HIDDEN), slice(first, first + SIGNS_PER_HEAD), factor * SLOT_COLUMN_NOISE)
            o.add(row + j, first + j, 0.5 * rms1 * UNIT)
    return [q, k, v, o] + norms


def mlp(number, lag, shift, n2, rms2):
    """gate, up and down of one layer."""
    gate = Tensor(number, INTER, HIDDEN, PROJECTION_NOISE)
    up = Tensor(number + 1, INTER, HIDDEN, PROJECTION_NOISE)
    factor = UNIT * SIGMA_MLP / (math.sqrt(3072.0) * UNIT_RMS)
    down = Tensor(number + 2, HIDDEN, INTER, factor)
    planted = 3 * CODE if lag else CODE if shift else 0
    for t in (gate, up):
        t.noise(slice(0, planted), slice(0, HIDDEN), PROJECTION_NOISE * SIGN_NOISE)
    down.noise(slice(0, HIDDEN), slice(0, planted), factor * PLANTED_UNIT_NOISE)
    unit = np.arange(CODE)
    a, b = SLOT_A + unit, SLOT_B + unit
    open_gate = 4 * rms2 / CONST / n2[0]
    silu4 = 4 / (1 + math.exp(-4.0))
    if shift:
        gate.add(unit, 0, open_gate)
        up.add(unit, a, -1 / n2[a])
        up.add(unit[:-1], a[1:], 1 / n2[a[1:]])
        down.add(a, unit, UNIT * rms2 / silu4)
    elif lag:
        step = 2 * UNIT * rms2 / (2 * SWITCH * GAIN)
        for first, edge, gain in ((0, -SWITCH, -step), (CODE, SWITCH, step)):
            gate.add(first + unit, b, -GAIN * rms2 / n2[b])
            gate.add(first + unit, 0, -GAIN * edge * rms2 / CONST / n2[0])
            up.add(first + unit, a, 1 / n2[a])
            down.add(a, first + unit, gain)
        gate.add(2 * CODE + unit, 0, open_gate)
        up.add(2 * CODE + unit, b, 1 / n2[b])
        down.add(b, 2 * CODE + unit, -UNIT * rms2 / silu4)
    return [gate, up, down]


def tensors(lagset):
    """Every tensor as (HF name, Tensor), in hash order."""
    names = iter(checkpoint_format.tensor_names(LAYERS, tied=True))
    yield next(names), embedding()
    base = CONST * CONST + CODE + HIDDEN * (SIGMA_EMBED * SIGMA_EMBED)
    variance = 0.0
    for layer in range(LAYERS):
        lag, shift = LAGS[lagset].get(layer, 0), layer == LAYERS - 1
        number = 2 + 11 * layer
        n1, n2 = norm(number), norm(number + 1)
        rms1 = math.sqrt(base / HIDDEN + variance)
        variance += SIGMA_ATTENTION * SIGMA_ATTENTION
        rms2 = math.sqrt((base + (CODE if lag else 0)) / HIDDEN + variance)
        variance += SIGMA_MLP * SIGMA_MLP
        made = [n1, n2] + attention(number + 2, lag, stored(n1), rms1)
        for t in made + mlp(number + 8, lag, shift, stored(n2), rms2):
            yield next(names), t
    yield next(names), norm(2 + 11 * LAYERS)


def build(lagset):
    """All tensors as torch bf16, by HF name."""
    import torch  # only here and below: the bytes and the closed form need numpy alone

    state = {}
    for name, t in tensors(lagset):
        bits = t.bits()
        state[name] = torch.from_numpy(bits[0] if t.rows == 1 else bits).view(torch.bfloat16)
    return state


def sha256(lagset):
    """The hash over all tensors' bytes, made and dropped one after the other."""
    digest = hashlib.sha256()
    for _, t in tensors(lagset):
        digest.update(t.bits().astype("<u2"))
    return digest.hexdigest()


def check_against_hf(lagset, rows=4, n=24):
    """Compares greedy ids of HF transformers in fp32 and bf16 with the closed form; True when all are equal."""
    import torch

    import qwen3_hf as hf

    state, good = build(lagset), True
    for dtype in (torch.float32, torch.bfloat16):
        decoder = hf.Decoder(hf.build(CONFIG, state, dtype))
        right, smallest = 0, math.inf
        for seed in range(rows):
            ids = prompt(sum(LAGS[lagset].values()) + 4, 1000 * seed + 1)
            out, logits = hf.greedy(decoder, ids, n)
            right += sum(a == b for a, b in zip(out, continuation(ids, lagset, n)))
            top = logits.topk(2, -1).values
            smallest = min(smallest, float((top[:, 0] - top[:, 1]).min()))
        print(f"synthetic:{lagset} {dtype}: {right} of {rows * n} ids equal, smallest margin {smallest:.2f}", flush=True)
        good = good and right == rows * n
        del decoder
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--hash", metavar="SET", choices=LAGS, help="print the hash; exit 1 unless it is the committed one")
    what.add_argument("--check", metavar="SET", choices=LAGS, help="compare HF transformers with the closed form")
    args = parser.parse_args()
    if args.check:
        raise SystemExit(0 if check_against_hf(args.check) else 1)
    start = time.monotonic()
    found = sha256(args.hash)
    wanted = json.loads((checkpoint_format.DATA / "synthetic" / "hashes.json").read_text())["sha256"][args.hash]
    print(f"synthetic:{args.hash} {found} ({time.monotonic() - start:.1f} s)")
    if found != wanted:
        raise SystemExit(f"synthetic:{args.hash}: sha256 is {found}, committed is {wanted}")


if __name__ == "__main__":
    main()
