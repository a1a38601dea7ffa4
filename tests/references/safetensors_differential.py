"""Compares mkbench's safetensors reader with the Python package, which is written in Rust, on sound and on damaged files.

The package must accept every file that mkbench accepts, with the same tensors. A file that the package accepts and
mkbench refuses must break one of the stricter rules that references/safetensors.h lists: mkbench's message names the
rule, and the file breaks it. Exit code 77: the package is not installed.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    print("skipped: this Python has no safetensors")
    sys.exit(77)


class Object(dict):
    """An object of JSON that remembers whether a key stood twice in it."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.doubled = len(self) < len(pairs)


def objects(value):
    """All objects inside a value of JSON, itself among them."""
    inner = value.values() if isinstance(value, Object) else value if isinstance(value, list) else []
    return [value] * isinstance(value, Object) + [found for v in inner for found in objects(v)]


def entries(root):
    return [value for name, value in root.items() if name != "__metadata__"]


def unknown_fields(root):
    return any(isinstance(e, Object) and set(e) - {"dtype", "shape", "data_offsets"} for e in entries(root))


# Rules of mkbench that the package (0.8.0) does not have: the message, and whether a header breaks the rule, given its
# bytes and its JSON. mkbench must read every other file that the package reads.
STRICTER = {
    r"must be an object that starts with '\{'": lambda text, root: text[:1] != b"{",
    r"duplicate key ": lambda text, root: any(o.doubled for o in objects(root)),
    r"unknown field ": lambda text, root: unknown_fields(root),
    r"shape has rank \d+, at most 8": lambda text, root: any(
        isinstance(e, Object) and len(e.get("shape", [])) > 8 for e in entries(root)),
    r"entry is an array of 3, wanted an object": lambda text, root: any(isinstance(e, list) for e in entries(root)),
    r"'__metadata__' is null": lambda text, root: root.get("__metadata__", 0) is None,
}

TOKENS = [
    "{", "}", "[", "]", ",", ":", '"', "\\", "\\u0000", "\\ud800", "0", "7", "-1", "-0", "+1", "01", "1e3",
    "1.5", "2.0", "null", "true", "NaN", '"a"', '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"',
    '"BF16"', '"F64"', '"F4"', '"F6_E2M3"', "18446744073709551615", "18446744073709551616", "4294967296",
    "\ufeff", "\u00e9", "\x00", " ", "\n", "\t", '"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},',
    '"__metadata__":{"k":"v"},', '"x":1,', "1,1,1,1,1,1,1,1,1,",
]


def container(header, data):
    return len(header).to_bytes(8, "little") + header + data


def entry(name, dtype, shape, begin, end):
    return json.dumps(name) + ":" + json.dumps(
        {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}, separators=(",", ":"))


def seeds():
    """Sound files, and one file for each rule of either reader."""
    a = entry("a", "BF16", [2], 0, 4)
    b = entry("b", "U8", [2, 1], 4, 6)
    headers = [
        (f"{{{a},{b}}}", 6),
        (f'{{"__metadata__":{{"format":"pt"}},{b},{a}}}   ', 6),
        (f"{{{a}}}", 4),
        ("{}", 0),
        ("{}", 4),
        (f" {{{a}}}", 4),
        (f"\n{{{a}}}", 4),
        (f"\ufeff{{{a}}}", 4),
        (f"{{{a}}}\n\t ", 4),
        (f"{{{a}}}\0\0", 4),
        (f"{{{a},{a}}}", 4),
        ('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"x":[1]}}}', 1),
        (f'{{"__metadata__":{{"k":1}},{a}}}', 4),
        (f'{{"__metadata__":null,{a}}}', 4),
        (f'{{"__metadata__":{{"k":"v"}},"__metadata__":{{"k":"v"}},{a}}}', 4),
        (f"{{{entry('a', 'F64', [], 0, 8)},{entry('z', 'I8', [0, 4], 8, 8)}}}", 8),
        (f"{{{entry('a', 'F4', [4], 0, 2)},{entry('b', 'F6_E3M2', [4], 2, 5)}}}", 5),
        (f"{{{entry('a', 'F4', [3], 0, 2)}}}", 2),
        (f"{{{entry('a', 'U8', [2**63, 0], 0, 0)}}}", 0),
        (f"{{{entry('a', 'BF16', [2**63, 2], 0, 0)}}}", 0),
        (f"{{{entry('a', 'U8', [0, 2**63, 4], 0, 0)}}}", 0),
        (f"{{{entry('a', 'U8', [1] * 9, 0, 1)}}}", 1),
        (f"{{{entry('a', 'U8', [4], 0, 4)},{entry('b', 'U8', [4], 3, 7)}}}", 7),
        (f"{{{entry('a', 'U8', [4], 0, 4)},{entry('b', 'U8', [4], 5, 9)}}}", 9),
        (f"{{{entry('a', 'U8', [4], 1, 5)}}}", 5),
        (f"{{{a}}}", 5),
        (f"{{{a}}}", 3),
        ('{"a":{"dtype":"BF16","shape":[1e0],"data_offsets":[0,2]}}', 2),
        ('{"a":{"dtype":"BF16","shape":[1.0],"data_offsets":[0,2]}}', 2),
        ('{"a":{"dtype":"BF16","shape":[-0],"data_offsets":[0,0]}}', 0),
        ('{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2,2]}}', 2),
        ('{"a":["BF16",[1],[0,2]]}', 2),
        ('{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
        ('{"\\u0000\\u00e9":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    ]
    for dtype in ("BOOL I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 I32 U32 F32 C64 I64 U64"
                  " bf16 F128").split():
        headers.append((f"{{{entry('a', dtype, [8], 0, 8)}}}", 8))
        headers.append((f"{{{entry('a', dtype, [4], 0, 8)}}}", 8))
        headers.append((f"{{{entry('a', dtype, [2], 0, 8)}}}", 8))
        headers.append((f"{{{entry('a', dtype, [1], 0, 8)}}}", 8))
    files = [container(header.encode(), b"x" * data) for header, data in headers]
    files += [b"", b"1234567", container(b"", b""), (2**64 - 8).to_bytes(8, "little") + b"{}",
              container(b"{}", b"")[:-1], container(b'{"\xff":1}', b"")]
    return files


def random_sound(rng):
    """A file that both readers should read: some tensors in any order, white space, metadata."""
    entries, data = [], b""
    for i in range(rng.randint(0, 4)):
        dtype, size = rng.choice([("BF16", 2), ("F64", 8), ("U8", 1), ("F32", 4), ("BOOL", 1)])
        shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]
        count = 1
        for dimension in shape:
            count *= dimension
        name = rng.choice(["a.b", "", "\u00e9", "x\ny", "'q'", "__meta__"]) + str(i)
        entries.append(entry(name, dtype, shape, len(data), len(data) + count * size))
        data += rng.randbytes(count * size)
    if rng.random() < 0.3:
        entries.append('"__metadata__":' + json.dumps({"k": "v" * rng.randint(0, 3)}))
    rng.shuffle(entries)
    space = rng.choice(["", " ", "\n\t"])
    header = "{" + space + ("," + space).join(entries) + space + "}" + " " * rng.randint(0, 9)
    return container(header.encode(), data)


def mutate(rng, pool):
    """A sound file or a seed after up to three edits; in most cases the size field is made to fit again."""
    if rng.random() < 0.5:
        data, edits = bytearray(random_sound(rng)), rng.randint(0, 1)
    else:
        data, edits = bytearray(rng.choice(pool)), rng.randint(1, 3)
    if edits == 0:
        return bytes(data)
    for _ in range(edits):
        at = rng.randint(0, len(data))
        length = rng.randint(1, 10)
        token = rng.choice(TOKENS).encode()
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = token
        elif kind == 2:
            del data[at:at + length]
        elif kind == 3:
            data[at:at] = data[at:at + length]
        elif kind == 4:
            data[at:at + length] = token
        else:
            digits = list(re.finditer(rb"\d+", bytes(data[8:])))
            if digits:
                match = rng.choice(digits)
                value = max(0, int(match.group()) + rng.choice([-1, 1, 2, 4]))
                data[8 + match.start():8 + match.end()] = str(value).encode()
    brace = data.rfind(b"}")
    if rng.random() < 0.8 and brace >= 8:
        data[:8] = (brace - 7).to_bytes(8, "little")
    return bytes(data)


def package_reads(data):
    """The package's tensors by name, or None when it refuses the file."""
    try:
        tensors = safetensors.deserialize(data)
    except (safetensors.SafetensorError, ValueError):
        return None
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in tensors}


def we_read(result, data):
    start = 8 + int.from_bytes(data[:8], "little")
    return {name: (t["dtype"], t["shape"], data[start + t["begin"]:start + t["end"]])
            for name, t in result["tensors"].items()}


def compare(data, result):
    """Compares the two readers on one file: (complaint or None, class of the agreement or None)."""
    theirs = package_reads(data)
    if "error" in result:
        if theirs is None:
            return None, "both refuse"
        text = data[8:8 + int.from_bytes(data[:8], "little")]
        root = json.loads(text, object_pairs_hook=Object)
        for pattern, breaks in STRICTER.items():
            if re.search(pattern, result["error"]) and breaks(text, root):
                return None, "stricter: " + pattern
        return f"the package reads it, we say: {result['error']}", None
    if theirs is None:
        return "we read it, the package refuses", None
    if we_read(result, data) != theirs:
        return f"different tensors: ours {result['tensors']}, theirs {theirs}", None
    return None, "both read"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe", help="the program load_probe")
    parser.add_argument("folders", nargs="*", help="folders of files, each of which both readers get too")
    parser.add_argument("--count", type=int, default=3000, help="files made by mutation (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20260101)
    arguments = parser.parse_args()
    probe = arguments.probe
    rng = random.Random(arguments.seed)
    pool = seeds()
    files = pool + [mutate(rng, pool) for _ in range(arguments.count)]
    given = [path.read_bytes() for folder in arguments.folders for path in sorted(pathlib.Path(folder).iterdir())]
    print(f"{len(files)} files of this test, {len(given)} of the folders")
    files += given
    seen = collections.Counter()
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(files), 500):
            chunk = files[first:first + 500]
            paths = [os.path.join(folder, str(i)) for i in range(len(chunk))]
            for path, data in zip(paths, chunk):
                with open(path, "wb") as out:
                    out.write(data)
            lines = subprocess.run([probe, "--headers", *paths], check=True, capture_output=True,
                                   text=True).stdout.splitlines()
            if len(lines) != len(chunk):
                sys.exit(f"load_probe answered {len(lines)} of {len(chunk)} files")
            for data, line in zip(chunk, lines):
                complaint, agreement = compare(data, json.loads(line))
                if complaint:
                    complaints.append(f"{data!r}: {complaint}")
                else:
                    seen[agreement] += 1
    for agreement, times in sorted(seen.items()):
        print(f"{times:6d}  {agreement}")
    for complaint in complaints[:20]:
        print(complaint)
    # Every class must have been met, or the test has not compared what it is for.
    unmet = [c for c in ["both read", "both refuse", *("stricter: " + p for p in STRICTER)] if not seen[c]]
    if unmet:
        print("never met:", ", ".join(unmet))
    sys.exit(1 if complaints or unmet else 0)


if __name__ == "__main__":
    main()
