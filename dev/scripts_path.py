"""Lets the programs of this folder import modules of scripts/; import this module before them."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
