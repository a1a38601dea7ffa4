"""Checks that torch has code for GPUs of the given compute capabilities: `... 9.0 12.0`; exit 1 if not.

Machine code runs on its own minor version and on later ones of the same major version; PTX runs on every newer
version. The check asks the library, not the device, so a wrong driver cannot hide the answer.
"""

import sys


def supported(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether one of torch's architectures (`sm_90`, `compute_120`) runs on this capability."""
    for entry in architectures:
        kind, _, number = entry.partition("_")
        digits = "".join(c for c in number if c.isdigit())
        have = (int(digits[:-1]), int(digits[-1]))
        if kind == "compute" and have <= capability:
            return True
        if kind != "sm" or have[0] != capability[0]:
            continue
        # A suffix (90a) ties the code to exactly that capability.
        if have == capability or (number == digits and have <= capability):
            return True
    return False


def main() -> int:
    import torch  # imported here, so that tests of supported() need no torch

    flags = torch._C._cuda_getArchFlags() or ""
    status = 0
    for word in sys.argv[1:]:
        major, _, minor = word.partition(".")
        if not supported((int(major), int(minor)), flags.split()):
            print(f"torch {torch.__version__} has code for: {flags}; this card is sm_{major}{minor}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
