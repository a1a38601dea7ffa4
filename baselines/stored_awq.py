"""AWQ, version gemm: (stored - zero point) * scale, 4 bits a value in int32 words along the outputs, in AWQ's order.

X.qweight [in, out / 8], X.qzeros [groups, out / 8], X.scales fp16 [groups, out].
"""

from stored_parts import bad_input, part_of, times_scales, unpacked

PARTS = ("qweight", "qzeros", "scales")
BESIDE = ()
ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # the place in a word of each of eight outputs


def form_of(stated):
    found = (stated.get("bits", stated.get("w_bit")), str(stated.get("version", "gemm")).lower())
    if found != (4, "gemm"):
        raise ValueError(f"bits and version are {found[0]!r} and {found[1]!r}, wanted 4 and 'gemm'")
    return "awq"


def outputs(words):
    return unpacked(words, 4, 1).unflatten(1, (-1, 8))[:, :, ORDER].flatten(1)


def shape(parts):
    inputs, words = parts.shape("qweight")
    return [8 * words, inputs]


def values(parts, _stated, _module):
    stored, zeros, scales = outputs(part_of(parts, "qweight")), outputs(part_of(parts, "qzeros")), part_of(parts, "scales")
    if zeros.shape != scales.shape or stored.shape[0] % len(zeros):
        raise bad_input(f"zero points {list(zeros.shape)} and scales {list(scales.shape)} do not divide {list(stored.shape)}")
    stored = stored - zeros.repeat_interleave(len(stored) // len(zeros), 0)
    return times_scales(stored, scales).T.contiguous()
