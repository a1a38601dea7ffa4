"""fp8 with block scales, as Qwen publishes it: X.weight in e4m3, X.weight_scale_inv a scale a block; their product."""

from stored_parts import part_of, times_scales

PARTS = ("weight", "weight_scale_inv")
BESIDE = ()


def form_of(stated):
    block = stated.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) and size > 0 for size in block)):
        raise ValueError(f"weight_block_size is {block!r}, wanted two sizes of a block: fp8 with one scale a tensor is not read yet")
    return "fp8"


def shape(parts):
    return parts.shape("weight")


def values(parts, stated, _module):
    return times_scales(part_of(parts, "weight"), part_of(parts, "weight_scale_inv"), stated["weight_block_size"])
