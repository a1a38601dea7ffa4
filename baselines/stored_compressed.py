"""compressed-tensors: (stored - zero point) * scale, with a scale a tensor, a row, a group of columns or a block.

pack-quantized holds 4 or 8 bits a value in int32 words, zero points along the rows; int-quantized and float-quantized hold
int8 or e4m3. With weight_g_idx, a column's group is the one that it names.
"""

from stored_parts import bad_input, part_of, times_scales, unpacked

PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight")
BESIDE = ("weight_shape", "weight_g_idx")
FORMS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def form_of(stated):
    form = stated.get("format")
    if form not in FORMS:
        raise ValueError(f"format is {form!r}, wanted one of {', '.join(FORMS)}")
    return form


def block_of(stated):
    """The sizes of a block where all groups of layers state the same."""
    groups = (stated.get("config_groups") or {}).values()
    blocks = {tuple((group.get("weights") or {}).get("block_structure") or ()) for group in groups}
    return list(blocks.pop()) or None if len(blocks) == 1 else None


def unpacked_weight(parts):
    """(unsigned integers [out, in], bits a value)."""
    words, shape = parts["weight_packed"], part_of(parts, "weight_shape").tolist()
    for bits in (4, 8):
        if len(shape) == 2 and shape[1] > 0 and list(words.shape) == [shape[0], -(-shape[1] * bits // 32)]:
            return unpacked(words, bits, 1)[:, :shape[1]], bits
    raise bad_input(f"words {list(words.shape)} hold a matrix {shape} (weight_shape), wanted 4 or 8 bits a value")


def values(parts, stated):
    scales, zeros = part_of(parts, "weight_scale"), parts.get("weight_zero_point")
    if "weight_packed" in parts:
        stored, bits = unpacked_weight(parts)
        if zeros is None:
            stored = stored - (1 << bits - 1)
        else:
            zeros = unpacked(zeros, bits, 0)[:len(stored)]
    else:
        stored = part_of(parts, "weight").float()
    groups = parts.get("weight_g_idx")
    if groups is not None and (groups >= 0).all():
        if scales.dim() != 2 or len(groups) != stored.shape[1] or groups.max() >= scales.shape[1]:
            raise bad_input(f"weight_g_idx names groups {list(groups.shape)} up to {int(groups.max())}, scales are {list(scales.shape)}")
        scales = scales[:, groups]
        zeros = None if zeros is None else zeros[:, groups]
    block = block_of(stated)
    if zeros is not None:
        ones = scales.new_ones(stored.shape).float()
        stored = stored - times_scales(ones, zeros.reshape(scales.shape), block)
    return times_scales(stored, scales, block)
