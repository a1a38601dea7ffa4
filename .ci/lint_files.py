"""Prints the files that clang-tidy reads, and writes BUILD/lint/compile_commands.json without precompiled headers."""

import json
import pathlib
import re
import sys

ROOMS = ("references/", "kernels/", "harness/", "tests/support/")

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path.cwd().resolve()
commands = json.loads((build / "compile_commands.json").read_text())
for command in commands:
    command["command"] = re.sub(r" -Winvalid-pch -include \S+cmake_pch\.hxx", "", command["command"])
(build / "lint" / "compile_commands.json").write_text(json.dumps(commands))

chosen = set()
for command in commands:
    file = pathlib.Path(command["file"])
    place = file.relative_to(build if file.is_relative_to(build) else root).as_posix()
    if place.startswith(ROOMS) and file.suffix in (".cpp", ".cxx") and "cmake_pch" not in place:
        chosen.add(str(file))
if not chosen:
    sys.exit(f"{build}/compile_commands.json names no file of {', '.join(ROOMS)}")
print("\n".join(sorted(chosen)))
