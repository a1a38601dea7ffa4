"""bitsandbytes. NF4 and FP4: a value of a table of 16, times the largest of a block; these may be stored in 8 bits themselves, as
values of a table of 256 times a scale, plus an offset. int8: stored * the row's largest / 127.

X.weight uint8 [out * in / 2, 1], the first value in the high bits; X.weight.absmax, X.weight.quant_map, X.weight.nested_absmax,
X.weight.nested_quant_map; X.weight.quant_state.bitsandbytes__nf4, JSON in bytes. int8: X.weight, X.SCB.
"""

import json

import torch
from stored_parts import bad_input, part_of, times_scales

PARTS = ("weight.absmax", "weight.nested_absmax", "SCB", "weight")
STATES = ("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4")
BESIDE = ("weight.quant_map", "weight.nested_quant_map", "weight_format", *STATES)


def form_of(stated):
    return "int8" if stated.get("load_in_8bit") else str(stated.get("bnb_4bit_quant_type", "fp4"))


def state_of(parts):
    found = [name for name in STATES if name in parts]
    return json.loads(bytes(part_of(parts, found[0] if found else STATES[0]).tolist()))


def of_blocks(table, indices, largest, block):
    """Each of `indices` in the table, times the largest of its block."""
    if len(largest) != -(-len(indices) // block):
        raise bad_input(f"found the largest of {len(largest)} blocks, wanted those of {len(indices)} values in blocks of {block}")
    return table[indices.long()] * largest.repeat_interleave(block)[:len(indices)]


def shape(parts):
    return state_of(parts)["shape"] if "weight.absmax" in parts else parts.shape("weight")


def values(parts, _stated, _module):
    weight = part_of(parts, "weight")
    if weight.dtype == torch.int8:
        return times_scales(weight, part_of(parts, "SCB")) * (1 / 127)
    state = state_of(parts)
    largest = part_of(parts, "weight.absmax")
    if "weight.nested_absmax" in parts:
        table, scales = part_of(parts, "weight.nested_quant_map"), parts["weight.nested_absmax"]
        largest = of_blocks(table, largest, scales, state["nested_blocksize"]) + state["nested_offset"]
    pairs = weight.flatten().view(torch.uint8)  # bnb_4bit_quant_storage may call the bytes another type
    indices = torch.stack((pairs >> 4, pairs & 15), 1).flatten()
    count = state["shape"][0] * state["shape"][1]
    if len(indices) != count + count % 2:
        raise bad_input(f"found {len(indices)} values, wanted those of {state['shape']}")
    return of_blocks(part_of(parts, "weight.quant_map"), indices[:count], largest, state["blocksize"]).reshape(state["shape"])
