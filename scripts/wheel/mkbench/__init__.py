"""The wheel's Python side: the console script `mkbench` executes the program of this folder."""

import os
import pathlib
import sys


def main() -> None:
    # The Python of this environment draws plots and runs engines (references/base/data_root.h).
    os.environ["MKBENCH_OWN_PYTHON"] = sys.executable
    program = pathlib.Path(__file__).resolve().parent / "mkbench"
    os.execv(program, ["mkbench", *sys.argv[1:]])
