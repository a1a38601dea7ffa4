"""Prints facts of this Python's torch without importing it (an import takes seconds).

One `name=value` a line: version, cuda, cmake (the folder for Torch_DIR), site (site-packages).
Exit code 1 and no output when there is no torch.
"""

import importlib.util
import pathlib
import runpy
import sys


def facts() -> dict[str, str] | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    package = pathlib.Path(spec.origin).resolve().parent
    cmake = package / "share" / "cmake" / "Torch"
    if not cmake.is_dir():
        return None
    told = runpy.run_path(str(package / "version.py"))
    return {"version": told["__version__"].split("+")[0], "cuda": told.get("cuda") or "none", "cmake": str(cmake),
            "site": str(package.parent)}


def main() -> int:
    found = facts()
    for name, value in (found or {}).items():
        print(f"{name}={value}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
