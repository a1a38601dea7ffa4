"""GPTQ: (stored - zero point) * scale, 2, 4 or 8 bits a value in int32 words.

X.qweight [in * bits / 32, out] packs inputs, X.qzeros [groups, out * bits / 32] outputs, X.scales fp16 [groups, out], X.g_idx
[in] the group of an input. Zero points are stored less one unless checkpoint_format is gptq_v2.
"""

import torch
from stored_parts import bad_input, part_of, unpacked

PARTS = ("qweight", "qzeros", "scales")
BESIDE = ("g_idx",)


def form_of(stated):
    bits, form = stated.get("bits"), stated.get("checkpoint_format") or "gptq"
    if bits not in (2, 4, 8) or form not in ("gptq", "gptq_v2"):
        raise ValueError(f"bits and checkpoint_format are {bits!r} and {form!r}, wanted 2, 4 or 8 and 'gptq' or 'gptq_v2'")
    return "gptq"


def bits_of(words, zeros):
    """Bits a value by the shapes of qweight and qzeros: "dynamic" may state others for some layers."""
    bits = 32 * zeros[1] // words[1]
    if bits not in (2, 4, 8):
        raise bad_input(f"qweight {words} and qzeros {zeros} are of {bits} bits a value, wanted 2, 4 or 8")
    return bits


def shape(parts):
    words = parts.shape("qweight")
    return [words[1], words[0] * 32 // bits_of(words, parts.shape("qzeros"))]


def values(parts, stated, _module):
    bits = bits_of(list(part_of(parts, "qweight").shape), list(part_of(parts, "qzeros").shape))
    stored, scales = unpacked(parts["qweight"], bits, 0), part_of(parts, "scales")
    zeros = unpacked(parts["qzeros"], bits, 1)
    if stated.get("checkpoint_format") != "gptq_v2":
        zeros = zeros + 1
        if zeros.max() == 1 << bits:
            raise bad_input(f"holds the zero point {(1 << bits) - 1}, which some kernels of auto-gptq read as 0 and others as {1 << bits}; "
                            "checkpoint_format gptq_v2 has no such")
    inputs, outputs = stored.shape
    groups = parts.get("g_idx")
    if groups is None:
        groups = torch.arange(inputs) // -(-inputs // len(scales))
    fit = zeros.shape == scales.shape and scales.shape[1] == outputs and len(groups) == inputs and 0 <= groups.min() and groups.max() < len(scales)
    if not fit or not scales.isfinite().all():
        raise bad_input(f"a matrix {[inputs, outputs]} of inputs and outputs has zero points {list(zeros.shape)}, scales {list(scales.shape)} "
                        f"and groups up to {int(groups.max())}, wanted finite ones of as many outputs for each group")
    groups = groups.long()
    return ((stored - zeros[groups]) * scales.float()[groups]).T.contiguous()
