#!/usr/bin/env python3
"""The analytic checkpoint in Python: makes the bf16 bytes that references/synthetic_weights.cpp makes.

usage: synthetic_checkpoint.py --hash [SHAPE:]SET    compares with references/data/synthetic/hashes.json

Shapes: those of references/model/published.h that have room, without one qwen3-0.6b. Sets: the keys of LAGS.
dev/synthetic_margins.py runs HF transformers against the closed form. Every element is

    bf16( float(scale) * float(h - 127.5) + float(plant) )      product and sum rounded separately

h = byte (i mod 8), little-endian, of splitmix64((tensor number << 40) + i / 8) at flat index i.
Tensors are numbered 1 embedding, then those of each layer (checkpoint_format.Family.layer_tensors()), the final norm, an
untied head, and hashed in that order. scale and plant are doubles, computed by the expressions below in exactly this
order of operations with the C library's exp, cos, sin, pow and sqrt (math, never numpy, whose SIMD
versions may differ in the last bit), then rounded once to float.
"""

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import time

import numpy as np

import checkpoint_format
import shape_table

# references/synthetic_plan.h has the meaning of each constant, under the same name, and the reasons.
CODE, SLOT_A, CODE_HIDDEN = 480, 1, 1024
UNIT, CONST = 1.0 / 32, 8.0
SIGMA_ATTENTION, SIGMA_MLP, SIGMA_EMBED = 0.08, 0.06, 0.125
DEVIATION, NORM_NOISE, PROJECTION_NOISE = 73.9, 0.07, 0.03
WAVE_NOISE, SIGN_NOISE, SLOT_COLUMN_NOISE, PLANTED_UNIT_NOISE = 0.13, 0.03, 0.3, 0.1
ATTENTION_RMS, UNIT_RMS = 0.7, 0.55
SIGNS_PER_HEAD, FREQUENCIES, FLAT_PAIRS, FLAT_SHARE = (120, 60), 20, 4, 0.8
PLANTED_NORM, ORDINARY_NORM, PLANTED_SCORE, BIAS_NOISE = 2.0, 1.25, 45.0, 0.5
SWITCH, GAIN = 0.5, 8.0
MULTIPLIER, OFFSET = 100003, 777
CHUNK_ELEMENTS = 1 << 21
POOL = concurrent.futures.ThreadPoolExecutor(os.cpu_count())  # numpy computes outside of Python's lock
LFSR_TAPS = {11: 0x500, 16: 0xD008, 17: 0x10004}
MOST_STATE_BITS, FEW_STATE_BITS = max(LFSR_TAPS), 15
LAYERS = 28  # number of layers of the model to which the layer numbers in LAGS belong

LAGS = {
    "none": {},
    "short": {4: 1, 12: 3, 20: 7},
    "deep": {4: 1, 12: 257, 20: 1500},
    "far": {4: 1, 12: 4000, 20: 26000},
    "early": {1: 2, 8: 5, 16: 3},
    "late": {6: 4, 15: 1, 25: 6},
} | {f"d{n}": {4: 1, 12: n // 9, 20: n * 7 // 8} for n in (512, 1024, 1536, 2048, 4096, 8192, 16384, 32704)}
SHAPE = shape_table.ROWS["qwen3-0.6b"]
CONFIG = SHAPE.config()


def lags(lagset, shape=SHAPE):
    """{layer: lag} of a lag set: its layers keep their relative depth, stay apart and below the last layer."""
    found, least = {}, 0
    for rank, layer in enumerate(sorted(LAGS[lagset])):
        most = shape.layers - 1 - len(LAGS[lagset]) + rank
        if most < least:
            raise ValueError(f"synthetic:{lagset}: {shape.layers} layers, wanted over {len(LAGS[lagset])}")
        scaled = layer * (shape.layers - 1) // (LAYERS - 1)
        found[min(max(scaled, least), most)] = LAGS[lagset][layer]
        least = max(found) + 1
    return found


def copies(shape):
    """How many neighbouring channels carry each sign of a codeword."""
    return shape.hidden // CODE_HIDDEN


def state_bits(vocab):
    """Bits of a state: as many as the vocabulary has room for, up to 17. Raises ValueError."""
    bits = min(MOST_STATE_BITS, vocab.bit_length() - 1)
    if bits not in LFSR_TAPS:
        raise ValueError(f"synthetic: vocabulary {vocab}: no LFSR of {bits} bits")
    return bits


def lfsr_step(s, bits=17):
    """The state after `s`, one step of the LFSR on; for ints or integer arrays."""
    return (s >> 1) ^ (LFSR_TAPS[bits] * (s & 1))


def token(state, vocab=SHAPE.vocab):
    """The id of a state (or of an array of states)."""
    return (state * MULTIPLIER + OFFSET) % vocab


def states_of_ids(vocab=SHAPE.vocab):
    """The state of every id, -1 where it has none."""
    table, states = np.full(vocab, -1, np.int64), np.arange(1 << state_bits(vocab), dtype=np.int64)
    table[token(states, vocab)] = states
    return table


def prompt(depth, seed, vocab=SHAPE.vocab):
    """depth + 1 ids: id i is the token of state splitmix64(seed + i) mod 2^bits."""
    draws = checkpoint_format.splitmix64(np.uint64(seed) + np.arange(depth + 1, dtype=np.uint64))
    return [int(token(int(d) % (1 << state_bits(vocab)), vocab)) for d in draws]


def continuation(ids, lagset, n, vocab=SHAPE.vocab):
    """The n ids after `ids` by the closed form: references/synthetic.h has the rule for the states."""
    table, steps = states_of_ids(vocab), [lag for _, lag in sorted(LAGS[lagset].items())]
    states = [int(table[i]) for i in ids]
    reach = sum(steps)
    if len(states) <= reach or min(states) < 0:
        raise ValueError(f"synthetic:{lagset}: the prompt needs more than {reach} ids, all with states")
    for _ in range(n):
        p = np.array(states[len(states) - reach - 1 :])
        for lag in steps:
            p = p[lag:] ^ p[: len(p) - lag]
        states.append(int(lfsr_step(p[-1], state_bits(vocab))))
    return [int(token(s, vocab)) for s in states[len(ids) :]]


def levels(tensor, begin, end):
    """The bytes h (see the top of this file) of flat indices [begin, end); both are multiples of 8."""
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
        self.planted = []  # (rows, cols, values, exact): arrays of indices and doubles; exact: without noise
        self.base = 0.0

    def noise(self, rows, cols, factor):
        """Sets the deviation of the noise in a block to `factor`."""
        self.blocks.append((rows, cols, factor))

    def add(self, rows, cols, values):
        """Plants values (doubles) on top of the noise."""
        rows, cols, values = np.broadcast_arrays(np.atleast_1d(rows), cols, np.asarray(values, np.float64))
        self.planted.append((rows, cols, values, False))

    def set(self, rows, cols, values):
        """Plants values without noise."""
        self.add(rows, cols, values)
        self.planted[-1] = self.planted[-1][:3] + (True,)

    def plant(self, scale, plant, begin, end):
        """Writes the planted values of rows [begin, end)."""
        for rows, cols, values, exact in self.planted:
            here = (rows >= begin) & (rows < end)
            at = (rows[here] - begin, cols[here])
            plant[at] = values[here].astype(np.float32)
            if exact:
                scale[at] = 0

    def chunk(self, begin, end):
        """Rows [begin, end) as bf16 bits."""
        scale = np.empty((end - begin, self.cols), np.float32)
        plant = np.full((end - begin, self.cols), np.float32(self.base))
        for rows, cols, factor in self.blocks:
            first, last = max(rows.start, begin), min(rows.stop, end)
            if first < last:
                scale[first - begin : last - begin, cols] = np.float32(factor / DEVIATION)
        self.plant(scale, plant, begin, end)
        h = levels(self.number, begin * self.cols, end * self.cols).astype(np.float32)
        product = scale * (h - np.float32(127.5)).reshape(scale.shape)
        return to_bf16(product + plant)

    def bits(self):
        """All rows as bf16 bits, [rows, cols]; every core makes chunks of rows."""
        out = np.empty((self.rows, self.cols), np.uint16)
        rows = max(1, CHUNK_ELEMENTS // self.cols)

        def make(begin):
            end = min(begin + rows, self.rows)
            out[begin:end] = self.chunk(begin, end)

        list(POOL.map(make, range(0, self.rows, rows)))
        return out


class Codewords(Tensor):
    """The embedding or an untied head: a codeword for each state, noise signs for ids without a state, the constant
    channel. The head holds the codewords with the opposite `sign`."""

    def __init__(self, number, shape, sign=1.0):
        super().__init__(number, shape.vocab, shape.hidden, SIGMA_EMBED * UNIT)
        self.copies, self.bits_of_state, self.sign = copies(shape), state_bits(shape.vocab), sign
        self.states = states_of_ids(shape.vocab)

    def plant(self, scale, plant, begin, end):
        scale[:, 0], plant[:, 0] = 0, UNIT * CONST
        s = self.states[begin:end]
        without = s < 0
        own = levels(self.number, begin * self.cols, end * self.cols).reshape(end - begin, self.cols)
        for i in range(CODE):
            for col in range(SLOT_A + i * self.copies, SLOT_A + (i + 1) * self.copies):
                negative = np.where(without, own[:, col] < 128, (s & 1).astype(bool))
                plant[:, col] = np.where(negative, -self.sign * UNIT, self.sign * UNIT)
            s = lfsr_step(s, self.bits_of_state)


def norm(number, hidden=SHAPE.hidden, weight=1.0):
    """The weights of an RMSNorm over the hidden state: `weight` and noise."""
    t = Tensor(number, 1, hidden, NORM_NOISE * weight)
    t.base = weight
    return t


def stored(t):
    """A vector's values as the checkpoint holds them, as doubles."""
    return (t.bits()[0].astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def frequency(shape, i):
    """RoPE's frequency i, scaled."""
    f = math.pow(shape.theta, -i / (shape.head_dim / 2.0))
    if shape.llama3_factor == 1:
        return f
    rope = shape.rope_parameters
    positions, low, high = float(rope["original_max_position_embeddings"]), rope["low_freq_factor"], rope["high_freq_factor"]
    wave = 1 / f * (2 * math.pi)
    if wave < positions / high:
        return f
    if wave > positions / low:
        return f / rope["factor"]
    smooth = (1 / wave * positions - low) / (high - low)
    return (1 - smooth) * f / rope["factor"] + smooth * f


def planted_signs(shape):
    """How many signs of a codeword a planted kv head carries; CODE // that many heads are planted."""
    return SIGNS_PER_HEAD[shape.head_dim < SIGNS_PER_HEAD[0]]


def wave_scale(shape, rms1):
    """The factor on planted rows of q and k that sets the score; 1 with QK-norm, which sets it there."""
    return 1.0 if shape.qk_norm else math.sqrt(PLANTED_SCORE / math.sqrt(float(shape.head_dim))) * rms1 / CONST


def waves(lag, shape, scale):
    """The vectors that planted query and key heads take from the constant channel."""
    energy = [math.exp(-2.0 * i / 10.0) for i in range(FREQUENCIES)]
    total = 0.0
    for e in energy:
        total += e
    query, key = np.zeros(shape.head_dim), np.zeros(shape.head_dim)
    for i in range(FREQUENCIES):
        amplitude = math.sqrt(energy[i] / total * shape.head_dim) * scale
        angle = lag * frequency(shape, i)
        query[i] = amplitude
        key[i] = amplitude * math.cos(angle)
        key[i + shape.head_dim // 2] = amplitude * math.sin(angle)
    if not shape.qk_norm:
        pairs = slice(shape.head_dim // 2 - FLAT_PAIRS, shape.head_dim // 2)
        query[pairs] = math.sqrt(FLAT_SHARE / FLAT_PAIRS * shape.head_dim) * scale
        key[pairs] = -query[pairs]
    return query, key


def projection_noise(shape):
    """Deviation of the noise in rows that read the normed hidden state."""
    return PROJECTION_NOISE * math.sqrt(CODE_HIDDEN / shape.hidden)


def attention(shape, number, lag, n1, rms1):
    """(q, k, v, o projections and q, k norms, biases of q, k, v) of one layer, the latter two where the shape has them."""
    dim, hidden, q_width, noise = shape.head_dim, shape.hidden, shape.heads * shape.head_dim, projection_noise(shape)
    group, times, signs, scale = shape.heads // shape.kv_heads, copies(shape), planted_signs(shape), wave_scale(shape, rms1)
    ordinary = 1.0 if shape.qk_norm else ORDINARY_NORM
    widths = [q_width, shape.kv_heads * dim, shape.kv_heads * dim]
    noises = list(zip(widths, (ordinary, ordinary, 1.0)))
    q, k, v = (Tensor(number + i, rows, hidden, noise * factor) for i, (rows, factor) in enumerate(noises))
    factor = UNIT * SIGMA_ATTENTION / (math.sqrt(float(q_width)) * ATTENTION_RMS)
    o = Tensor(number + 3, hidden, q_width, factor)
    norms = [Tensor(number + 4 + i, 1, dim, 0.0) for i in range(2 if shape.qk_norm else 0)]
    for t in norms:
        t.base = PLANTED_NORM if lag else ORDINARY_NORM
    first_bias = number + 7 + len(norms)
    biases = [Tensor(first_bias + i, 1, rows, BIAS_NOISE * f) for i, (rows, f) in enumerate(noises)]
    if lag:
        planted = CODE // signs
        for t, bias, wave, heads in zip((q, k), biases, waves(lag, shape, scale), (planted * group, planted)):
            rows = np.arange(heads * dim)
            t.noise(slice(0, heads * dim), slice(0, hidden), noise * (WAVE_NOISE * scale))
            t.set(rows, 0, wave[rows % dim] / n1[0])
            bias.noise(slice(0, 1), slice(0, heads * dim), BIAS_NOISE * (WAVE_NOISE * scale))
        j = np.arange(signs)
        for head in range(planted * group):
            kv_head, first = head // group, head * dim
            o.noise(slice(0, hidden), slice(first, first + signs), factor * SLOT_COLUMN_NOISE)
            for copy in range(times):
                row = SLOT_A + CODE * times + (kv_head * signs + j) * times + copy
                o.add(row, first + j, 1.0 / group * rms1 * UNIT)
        for head in range(planted):
            first = head * dim
            v.noise(slice(first, first + signs), slice(0, hidden), noise * SIGN_NOISE)
            biases[2].noise(slice(0, 1), slice(first, first + signs), BIAS_NOISE * SIGN_NOISE)
            for copy in range(times):
                col = SLOT_A + (head * signs + j) * times + copy
                v.add(first + j, col, 1.0 / times / n1[col])
    return [q, k, v, o] + norms, biases if shape.qkv_bias else []


def mlp(shape, number, lag, shift, n2, rms2):
    """gate, up and down of one layer."""
    hidden, inter, times, noise = shape.hidden, shape.intermediate, copies(shape), projection_noise(shape)
    width = CODE * times
    gate = Tensor(number, inter, hidden, noise)
    up = Tensor(number + 1, inter, hidden, noise)
    factor = UNIT * SIGMA_MLP / (math.sqrt(float(inter)) * UNIT_RMS)
    down = Tensor(number + 2, hidden, inter, factor)
    planted = 3 * width if lag else width if shift else 0
    for t in (gate, up):
        t.noise(slice(0, planted), slice(0, hidden), noise * SIGN_NOISE)
    down.noise(slice(0, hidden), slice(0, planted), factor * PLANTED_UNIT_NOISE)
    unit = np.arange(width)
    a, b = SLOT_A + unit, SLOT_A + width + unit
    open_gate = 4 * rms2 / CONST / n2[0]
    silu4 = 4 / (1 + math.exp(-4.0))
    if shift:
        gate.add(unit, 0, open_gate)
        up.add(unit, a, -1 / n2[a])
        up.add(unit[:-times], a[times:], (1.0 if shape.tied else -1.0) / n2[a[times:]])
        down.add(a, unit, UNIT * rms2 / silu4)
    elif lag:
        step = 2 * UNIT * rms2 / (2 * SWITCH * GAIN)
        for first, edge, gain in ((0, -SWITCH, -step), (width, SWITCH, step)):
            gate.add(first + unit, b, -GAIN * rms2 / n2[b])
            gate.add(first + unit, 0, -GAIN * edge * rms2 / CONST / n2[0])
            up.add(first + unit, a, 1 / n2[a])
            down.add(a, first + unit, gain)
        gate.add(2 * width + unit, 0, open_gate)
        up.add(2 * width + unit, b, 1 / n2[b])
        down.add(b, 2 * width + unit, -UNIT * rms2 / silu4)
    return [gate, up, down]


def check_room(shape):
    """Raises ValueError where a shape has no room for the codewords and what copies them."""
    width = CODE * copies(shape)
    room = (("hidden", shape.hidden, CODE_HIDDEN), ("intermediate", shape.intermediate, 3 * width),
            ("head_dim", shape.head_dim, planted_signs(shape)), ("kv_heads", shape.kv_heads, CODE // planted_signs(shape)))
    for field, found, wanted in room:
        if found < wanted:
            raise ValueError(f"synthetic:{shape.name}: {field} is {found}, wanted at least {wanted}")
    state_bits(shape.vocab)


def has_room(shape):
    """Whether check_room() lets a shape pass."""
    try:
        return check_room(shape) is None
    except ValueError:
        return False


def analytic_names():
    """The names of the published shapes that have analytic weights, for messages and help."""
    return ", ".join(name for name, shape in shape_table.ROWS.items() if has_room(shape))


def tensors(lagset, shape=SHAPE):
    """Every tensor as (HF name, Tensor), in hash order."""
    check_room(shape)
    per_layer = len(checkpoint_format.families()[shape.model_type].layer_tensors())
    names = iter(checkpoint_format.tensor_names(shape.layers, shape.tied, shape.model_type))
    hidden, planted = shape.hidden, lags(lagset, shape)
    width = CODE * copies(shape)
    yield next(names), Codewords(1, shape)
    base = CONST * CONST + width + hidden * (SIGMA_EMBED * SIGMA_EMBED)
    variance = 0.0
    for layer in range(shape.layers):
        lag, shift = planted.get(layer, 0), layer == shape.layers - 1
        number = 2 + per_layer * layer
        n1, n2 = norm(number, hidden), norm(number + 1, hidden)
        rms1 = math.sqrt(base / hidden + variance)
        variance += SIGMA_ATTENTION * SIGMA_ATTENTION
        rms2 = math.sqrt((base + (width if lag else 0)) / hidden + variance)
        variance += SIGMA_MLP * SIGMA_MLP
        made, biases = attention(shape, number + 2, lag, stored(n1), rms1)
        for t in [n1, n2, *made, *mlp(shape, number + 2 + len(made), lag, shift, stored(n2), rms2), *biases]:
            yield next(names), t
    last = 2 + per_layer * shape.layers
    yield next(names), norm(last, hidden, (0.5 if state_bits(shape.vocab) <= FEW_STATE_BITS else 1.0) / copies(shape))
    if not shape.tied:
        yield next(names), Codewords(last + 1, shape, sign=-1.0)


def build(lagset, shape=SHAPE):
    """All tensors as torch bf16, by HF name."""
    import torch  # only here: the bytes and the closed form need numpy alone

    state = {}
    for name, t in tensors(lagset, shape):
        bits = t.bits()
        state[name] = torch.from_numpy(bits[0] if t.rows == 1 else bits).view(torch.bfloat16)
    return state


def sha256(lagset, shape=SHAPE):
    """The hash over all tensors' bytes, made and dropped one after the other."""
    digest = hashlib.sha256()
    for _, t in tensors(lagset, shape):
        digest.update(t.bits().astype("<u2"))
    return digest.hexdigest()


def parse(name):
    """(shape, lag set) of "SET" or "SHAPE:SET". Raises ValueError."""
    shape, _, lagset = name.rpartition(":")
    if (shape and shape not in shape_table.ROWS) or lagset not in LAGS:
        raise ValueError(f"synthetic:{name}: wanted [SHAPE:]SET, SHAPE of {analytic_names()}, SET of {', '.join(LAGS)}")
    found = shape_table.ROWS[shape or SHAPE.name]
    check_room(found)
    return found, lagset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hash", metavar="[SHAPE:]SET", required=True, help="print the hash; exit 1 unless it is the committed one")
    args = parser.parse_args()
    try:
        shape, lagset = parse(args.hash)
    except ValueError as error:
        parser.error(str(error))
    start = time.monotonic()
    found = sha256(lagset, shape)
    hashes = json.loads((checkpoint_format.DATA / "synthetic" / "hashes.json").read_text())
    committed = hashes["sha256"] | hashes["sha256_of_shapes"]
    name = args.hash.removeprefix(SHAPE.name + ":")
    print(f"synthetic:{name} {found} ({time.monotonic() - start:.1f} s)")
    if found != committed.get(name):
        raise SystemExit(f"synthetic:{name}: sha256 is {found}, committed is {committed.get(name, 'none')}")


if __name__ == "__main__":
    main()
