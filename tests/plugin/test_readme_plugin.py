"""The commands of the README's section "Judge your own kernel", as they stand there, from an empty folder."""

import os
import pathlib
import re
import subprocess
import unittest
import unittest.mock

from support.cli_support import BINARY, ROOT, CliTest, environment
from support.page_blocks import blocks


class FromAnEmptyFolder(CliTest):
    def clone(self):
        """A home folder whose ~/mkbench has this tree's files and runs the binary under test without building it, with few
        prompts and samples: what is asked of the commands is a verdict."""
        clone = self.folder / "home" / "mkbench"
        (clone / "scripts").mkdir(parents=True)
        for name in ("baselines", "references", "tests"):
            (clone / name).symlink_to(ROOT / name)
        run = clone / "scripts" / "run.sh"
        references = [self.short_reference(model) for model in ("tiny", "tiny-untied")][0]
        run.write_text(f'#!/bin/sh\nexec "{BINARY}" "$@" --reference "{references}" --blocks 2 --n-gen 8\n')
        run.chmod(0o755)
        # The README says g++; this build may use another.
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "g++").symlink_to(pathlib.Path(os.environ["CXX"]).resolve())
        return clone.parent, tools

    def run_block(self, block):
        """The block in an empty folder: the folder, and how it ended."""
        home, tools = self.clone()
        empty = self.folder / "empty"
        empty.mkdir()
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=empty, text=True, timeout=180, check=False,
            env=environment(HOME=str(home), PATH=f"{tools}:{os.environ['PATH']}", MKBENCH_PLOT="off"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return empty, result

    def test_there_are_three_ways_in(self):
        self.assertEqual([bool(re.search(way, block)) for way, block in zip((r"g\+\+", "nvcc", r"\.py"), blocks("README.md", "Judge your own kernel"))],
                         [True] * 3)
        self.assertEqual(len(blocks("README.md", "Judge your own kernel")), 3)

    def test_cpp_ends_with_a_verdict(self):
        folder, result = self.run_block(blocks("README.md", "Judge your own kernel")[0])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("./engine.so (step-cpu@engine.so)", result.stdout)
        self.assertIn("**PASS** (exit code 0, 2 cases)", result.stdout)
        self.assertTrue((folder / "engine.so").exists())
        self.assertLess(len((folder / "engine.cpp").read_text().splitlines()), 60)  # as README says

    def test_python_ends_with_a_verdict(self):
        _, result = self.run_block(blocks("README.md", "Judge your own kernel")[2])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("./decoder.py (hf@decoder.py)", result.stdout)
        self.assertIn("**PASS** (exit code 0, 2 cases)", result.stdout)

    def test_cuda_builds(self):
        """Without a GPU the library is built and refused: it has no code for a CPU."""
        nvcc = os.environ["CUDACXX"]
        (self.folder / "bin").mkdir()
        stub = self.folder / "bin" / "nvcc"
        stub.write_text(f'#!/bin/bash\nexec "{nvcc}" "${{@/native/sm_90}}"\n')  # "native" asks for a GPU
        stub.chmod(0o755)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        with unittest.mock.patch.dict(os.environ, PATH=path, MKBENCH_DEVICE="cpu"):
            folder, result = self.run_block(blocks("README.md", "Judge your own kernel")[1].rstrip() + " --device cpu --model tiny")
        self.assertTrue((folder / "kernel.so").exists(), result.stderr)
        self.assertEqual(result.returncode, 6, result.stdout + result.stderr)
        self.assertIn("devices: found cuda, wanted cpu", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
