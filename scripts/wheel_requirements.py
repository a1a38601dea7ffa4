"""What the wheel depends on, for scikit-build-core (pyproject.toml): exactly the torch that it was built with, because
libtorch promises no ABI, and the packages of scripts/requirements/python.txt that are imported at run time, from the
tested version on."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD_ONLY = {"cmake", "ninja", "jsonschema", "clang-format", "clang-tidy"}


def requirements(torch_version: str, pins: str) -> list[str]:
    lines = [line for line in pins.splitlines() if line and not line.startswith("#")]
    named = [line for line in lines if re.split(r"[=<>\[]", line)[0] not in BUILD_ONLY]
    return [f"torch=={torch_version}", *(line.replace("==", ">=") for line in named)]


def dynamic_metadata(settings: object, project: object) -> dict[str, list[str]]:
    sys.path.insert(0, str(HERE))
    import find_torch
    facts = find_torch.facts()
    if facts is None:
        raise RuntimeError(f"found no torch in {sys.executable}, which a build needs; scripts/wheel.sh builds with one")
    return {"dependencies": requirements(facts["version"],
                                         (HERE / "requirements" / "python.txt").read_text(encoding="utf-8"))}
