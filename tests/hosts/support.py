"""tests/support/ as a package for the tests of this folder, as in `from support.cli_support import CliTest`."""

import pathlib

__path__ = [str(pathlib.Path(__file__).resolve().parents[1] / "support")]
