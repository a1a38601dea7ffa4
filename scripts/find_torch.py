"""Prints facts of this Python's torch without importing it (an import takes seconds).

One `name=value` a line: version, cuda, cmake (the folder for Torch_DIR), site (site-packages).
Exit code 1 and no output when there is no torch.
"""

import importlib.util
import pathlib
import runpy
import sys


def main() -> int:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return 1
    package = pathlib.Path(spec.origin).resolve().parent
    cmake = package / "share" / "cmake" / "Torch"
    if not cmake.is_dir():
        return 1
    facts = runpy.run_path(str(package / "version.py"))
    print(f"version={facts['__version__'].split('+')[0]}")
    print(f"cuda={facts.get('cuda') or 'none'}")
    print(f"cmake={cmake}")
    print(f"site={package.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
