"""The commands of the README's section "Judge your own kernel", as they stand there, from an empty folder."""

import os
import pathlib
import re
import subprocess
import unittest

from cli_support import BINARY, ROOT, CliTest, environment

SECTION = "## Judge your own kernel"


def commands():
    """The shell blocks of the section, in order."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index(SECTION) + len(SECTION):]
    section = section[:section.index("\n## ")]
    return re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


class FromAnEmptyFolder(CliTest):
    def clone(self):
        """A home folder whose ~/mkbench has this tree's files and runs the binary under test without building it."""
        clone = self.folder / "home" / "mkbench"
        (clone / "scripts").mkdir(parents=True)
        for name in ("references", "tests"):
            (clone / name).symlink_to(ROOT / name)
        run = clone / "scripts" / "run.sh"
        run.write_text(f'#!/bin/sh\nexec "{BINARY}" "$@"\n')
        run.chmod(0o755)
        # The README says g++; this build may use another.
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "g++").symlink_to(pathlib.Path(os.environ["CXX"]).resolve())
        return clone.parent, tools

    def test_it_ends_with_a_verdict(self):
        blocks = commands()
        self.assertEqual(len(blocks), 1)
        self.assertIn("scripts/run.sh", blocks[0])
        home, tools = self.clone()
        empty = self.folder / "empty"
        empty.mkdir()
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", blocks[0]], cwd=empty, text=True, timeout=180, check=False,
            env=environment(HOME=str(home), PATH=f"{tools}:{os.environ['PATH']}", MKBENCH_PLOT="off"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("./engine.so (naive-cpu@engine.so)", result.stdout)
        self.assertIn("**PASS** (exit code 0, 1 case)", result.stdout)
        self.assertTrue((empty / "engine.so").exists())


if __name__ == "__main__":
    unittest.main()
