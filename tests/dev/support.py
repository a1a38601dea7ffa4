"""tests/support/ as a package for the tests of this folder, which import modules of scripts/ and dev/ after it."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
__path__ = [str(ROOT / "tests" / "support")]
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "dev")]
