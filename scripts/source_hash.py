"""Prints the source hashes: which code an evidence file or a report's figures belong to.

  source_hash.py              both, a line each: its name, then 64 hex digits
  source_hash.py speed        one of them, the digits alone

`speed` covers the code that is timed and the clock, `judgement` covers the references and the judge, so that a
change to the judge leaves measured times fresh, and a change to the clock leaves verdicts fresh. A hash is the
sha256 over path, size and content of its files (git's, and new ones that git does not ignore). Reports,
documentation and scripts may change without making evidence stale, and so may comments and blanks of C++ and
CUDA: the content of these files is their code.
"""

import hashlib
import os
import pathlib
import re
import sys

from tracked_files import ROOT, tracked_files

KINDS = ("speed", "judgement")
# Start of a path -> the hashes that cover it; the first row that fits counts. A new file of the flow or of a host
# falls into both until a row says that it only times or only judges.
COVERED = (
    ("CMakeLists.txt", KINDS),
    ("kernels/", ("speed",)), ("harness/device/", ("speed",)), ("harness/measure/", ("speed",)),
    ("references/", ("judgement",)), ("baselines/", ("judgement",)), ("harness/judge/", ("judgement",)),
    ("harness/plugin/", ("judgement",)),
    ("harness/flow/blocks.", ("speed",)), ("harness/flow/ablations.", ("speed",)),
    ("harness/flow/recorder.", ("speed",)),
    ("harness/host/card_work.", ("speed",)), ("harness/host/cuda_program_tune.", ("speed",)),
    ("harness/flow/gate.", ("judgement",)), ("harness/flow/timed_truth.", ("judgement",)),
    ("harness/flow/trials.", ("judgement",)), ("harness/host/faulty_engine.", ("judgement",)),
    ("harness/flow/", KINDS), ("harness/host/", KINDS), ("harness/wire/", KINDS),
    # Proxies, processes and turns: deadlines decide verdicts, and crossings cost time.
    ("harness/hosts/", KINDS),
)
CODE = (".c", ".h", ".cpp", ".cuh", ".cu")
# Matches literals, which stay as they are (raw strings, strings, characters; not the separator of digits), and
# comments.
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


def covered(path: str) -> tuple[str, ...]:
    """The hashes that cover a file, by name."""
    return next((kinds for start, kinds in COVERED
                 if path == start or start[-1] in "/._" and path.startswith(start)), ())


def source_hash(kind: str, root: pathlib.Path = ROOT) -> str:
    """The hash `kind` of a tree: 64 hex digits."""
    digest = hashlib.sha256()
    # New files count before they are added: a copied tree may come with an index that is older than it.
    paths = [path for path in tracked_files(root, untracked=True) if kind in covered(path)]
    if not paths:
        raise SystemExit(f"source_hash: {root} has no file that '{kind}' covers; the hashes are {', '.join(KINDS)}")
    for path in paths:
        content = (root / path).read_bytes()
        if path.endswith(CODE):
            content = code_of(content)
        # The size between path and bytes keeps two files from being read as one.
        digest.update(os.fsencode(path) + b"\0" + str(len(content)).encode() + b"\0")
        digest.update(content)
    return digest.hexdigest()


def source_hashes(root: pathlib.Path = ROOT) -> dict[str, str]:
    return {kind: source_hash(kind, root) for kind in KINDS}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(source_hash(sys.argv[1]))
    else:
        print("\n".join(f"{kind} {value}" for kind, value in source_hashes().items()))
