"""compressed-tensors: (stored - zero point) * scale, with a scale a tensor, a row, a group of columns or a block.

pack-quantized holds 4 or 8 bits a value in int32 words, and zero points along the rows, or these in int8; int-quantized and
float-quantized hold int8 or e4m3. With weight_g_idx, a column's group is the one that it names.
"""

import re

import torch
from stored_parts import bad_input, part_of, times_scales, unpacked

PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight")
BESIDE = ("weight_shape", "weight_g_idx")
FORMS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def form_of(stated):
    form, sparse = stated.get("format"), (stated.get("sparsity_config") or {}).get("format", "dense")
    if form not in FORMS:
        raise ValueError(f"format is {form!r}, wanted one of {', '.join(FORMS)}")
    if stated.get("transform_config") or sparse != "dense":
        raise ValueError(f"transform_config is {bool(stated.get('transform_config'))} and sparsity_config is {sparse!r}, wanted none: "
                         "weights that are turned, or of which some are left out, are not read yet")
    return form


def shape(parts):
    return part_of(parts, "weight_shape").tolist() if "weight_packed" in parts else parts.shape("weight")


def block_of(stated, module):
    """The sizes of a block that the config's group of a module states; None where its scales divide it evenly."""
    groups = list((stated.get("config_groups") or {}).values())

    def names(group):
        return any(target == module or target.startswith("re:") and re.match(target[3:], module) for target in group.get("targets") or ())
    of_module = [group for group in groups if names(group)] or [group for group in groups if "Linear" in (group.get("targets") or ("Linear",))]
    weights = (of_module[0].get("weights") or {}) if of_module else {}
    block = weights.get("block_structure")
    if isinstance(block, str):
        block = [int(size) for size in block.split("x")]
    if not block and (weights.get("group_size") or 0) > 0:
        block = [1, weights["group_size"]]
    return block or None


def unpacked_weight(parts):
    """(unsigned integers [out, in], bits a value)."""
    words, rows_columns = parts["weight_packed"], part_of(parts, "weight_shape").tolist()
    for bits in (4, 8):
        if len(rows_columns) == 2 and rows_columns[1] > 0 and list(words.shape) == [rows_columns[0], -(-rows_columns[1] * bits // 32)]:
            return unpacked(words, bits, 1)[:, :rows_columns[1]], bits
    raise bad_input(f"words {list(words.shape)} hold a matrix {rows_columns} (weight_shape), wanted 4 or 8 bits a value")


def unpacked_zeros(zeros, scales, rows, bits):
    """Zero points of unsigned integers, in the scales' shape."""
    if zeros.dtype == torch.int32 and list(zeros.shape) == [-(-rows * bits // 32), *scales.shape[1:]]:
        return unpacked(zeros, bits, 0)[:rows]
    if zeros.dtype == torch.int8 and zeros.shape == scales.shape:
        return zeros.to(torch.int16) + (1 << bits - 1)
    raise bad_input(f"weight_zero_point is {zeros.dtype} {list(zeros.shape)}, wanted int32 words of {bits} bits along {rows} rows, or "
                    f"int8 of the scales' shape, {list(scales.shape)}")


def values(parts, stated, module):
    scales, zeros = part_of(parts, "weight_scale"), parts.get("weight_zero_point")
    if "weight_packed" in parts:
        stored, bits = unpacked_weight(parts)
        if zeros is None:
            stored = stored - (1 << bits - 1)
        else:
            zeros = unpacked_zeros(zeros, scales, len(stored), bits)
    else:
        stored = part_of(parts, "weight").float()
    groups, block = parts.get("weight_g_idx"), block_of(stated, module)
    if groups is not None and (groups >= 0).all():
        if scales.dim() != 2 or len(groups) != stored.shape[1] or groups.max() >= scales.shape[1]:
            raise bad_input(f"weight_g_idx names groups {list(groups.shape)} up to {int(groups.max())}, scales are {list(scales.shape)}")
        scales, block = scales[:, groups], None
        zeros = None if zeros is None else zeros[:, groups]
    if scales.dim() < 2:
        block = None  # one a tensor or a row
    if zeros is not None:
        ones = scales.new_ones(stored.shape).float()
        stored = stored - times_scales(ones, zeros.reshape(scales.shape), block)
    return times_scales(stored, scales, block)
