"""Prints the source hash: which code an evidence file or a report's figures belong to.

sha256 over path, size and content of the files (git's, and new ones that it does not ignore) that decide what
is computed and how it is timed: the kernels, baselines and references, the harness's device, measuring, parity
and worker folders, and CMakeLists.txt. Reports, documentation and scripts may change without making evidence
stale, and so may comments and blanks of C++ and CUDA: the content of these files is their code.
"""

import hashlib
import os
import pathlib
import re
import sys

from tracked_files import ROOT, tracked_files

COVERED = (
    "kernels/", "baselines/", "references/",
    "harness/device/", "harness/measure/", "harness/judge/", "harness/host/", "harness/plugin/", "harness/wire/",
)
COVERED_FILES = ("CMakeLists.txt",)
CODE = (".h", ".cpp", ".cuh", ".cu")
# What stands as it is (raw strings, strings, characters; not the separator of digits), and comments.
TOKEN = re.compile(rb'''(?P<kept>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'''
                   rb'''|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')'''
                   rb'''|//(?:\\\n|[^\n])*|/\*.*?\*/''', re.DOTALL)


def code_of(text: bytes) -> bytes:
    """C++ without comments, with single blanks and without empty lines; literals stay as they are."""
    parts, code, at = [], b"", 0

    def flush():
        single = re.sub(rb"[ \t\r]+", b" ", code)
        parts.append(re.sub(rb" ?\n[ \n]*", b"\n", single))

    for token in TOKEN.finditer(text):
        code += text[at:token.start()]
        at = token.end()
        if token["kept"] is None:
            code += b" "
            continue
        flush()
        parts.append(token["kept"])
        code = b""
    code += text[at:]
    flush()
    return b"".join(parts).strip()


def covered(path: str) -> bool:
    return path.startswith(COVERED) or path in COVERED_FILES


def source_hash(root: pathlib.Path = ROOT) -> str:
    """64 hex digits."""
    digest = hashlib.sha256()
    # New files count before they are added: a copied tree may come with an index that is older than it.
    paths = [path for path in tracked_files(root, untracked=True) if covered(path)]
    if not paths:
        raise SystemExit(f"source_hash: found none of {', '.join(COVERED)} in {root}")
    for path in paths:
        content = (root / path).read_bytes()
        if path.endswith(CODE):
            content = code_of(content)
        # The size between path and bytes keeps two files from being read as one.
        digest.update(os.fsencode(path) + b"\0" + str(len(content)).encode() + b"\0")
        digest.update(content)
    return digest.hexdigest()


if __name__ == "__main__":
    print(source_hash(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
