"""What the readers of quantised weights share (stored_weights.py)."""

import torch
from hf_decoder import of_kind


def bad_input(text):
    return of_kind("bad_input", ValueError(text))


def part_of(parts, name):
    if name not in parts:
        raise bad_input(f"is quantised and has no {name} beside {', '.join(sorted(parts))}")
    return parts[name]


def unpacked(words, bits, dim):
    """The unsigned integers of int32 words along a dimension, the first in a word's lowest bits, in int16."""
    parts = [(words >> shift & (1 << bits) - 1).to(torch.int16) for shift in range(0, 32, bits)]
    return torch.stack(parts, dim + 1).flatten(dim, dim + 1)


def times_scales(tensor, scales, block=None):
    """Each value times the scale of its block, in fp32; without a block size the scales divide the tensor evenly."""
    if block is None:
        scales = scales.reshape(-1, 1) if scales.dim() < 2 else scales
        block = [size // count if count and size % count == 0 else 0 for size, count in zip(tensor.shape, scales.shape)]
    wanted = [-(-size // step) if step else "a divisor of " + str(size) for size, step in zip(tensor.shape, block)]
    if list(scales.shape) != wanted or not scales.isfinite().all():
        bad = "NaN or Inf" if list(scales.shape) == wanted else "of another shape"
        raise bad_input(f"scales {bad}: found {list(scales.shape)}, wanted {wanted} finite ones of a matrix {list(tensor.shape)}")
    for dim, step in enumerate(block):
        scales = scales.repeat_interleave(step, dim).narrow(dim, 0, tensor.shape[dim])
    return tensor.float() * scales.float()
