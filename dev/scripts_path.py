"""Lets the programs of this folder import the modules of scripts/. Imported before those."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
