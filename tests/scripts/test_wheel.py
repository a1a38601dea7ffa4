"""The commands of docs/install.md that need a wheel, as they stand there: `bash .ci/long wheel`.

The wheel is built, then installed into a new virtual environment and used from an empty folder, with no compiler on
PATH, and with the clone and set-up's environment out of sight.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from support import page_blocks
from support.page_blocks import ROOT

COMPILERS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang.*|cpp|c[89]9|nvcc|ld.*|as|make|cmake|ctest|ninja)(-[\d.]+)?")
blocks = functools.partial(page_blocks.blocks, "docs/install.md")
HIDDEN = [ROOT, pathlib.Path(sys.prefix)]
# Mounts $1 over what stands before --, then runs the rest.
HIDE = 'empty="$1"; shift; while [ "$1" != -- ]; do mount --bind "$empty" "$1"; shift; done; shift; exec "$@"'


def programs_without_compilers(folder):
    """A folder of links to everything on PATH but compilers and build tools."""
    for place in os.environ["PATH"].split(":"):
        if pathlib.Path(place).is_relative_to(sys.prefix):
            continue
        for program in pathlib.Path(place).glob("*"):
            if not COMPILERS.fullmatch(program.name) and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return folder


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench wheel "))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in ("empty", "home", "work", "bin"):
            (cls.folder / name).mkdir()
        cls.work = cls.folder / "work"
        cls.path = programs_without_compilers(cls.folder / "bin")
        # Block 0 builds, block 1 installs and runs.
        begun = time.monotonic()
        subprocess.run(["bash", "-euo", "pipefail", "-c", blocks("A wheel")[0]], cwd=ROOT, check=True)
        cls.wheel, = (ROOT / "build" / "wheels").glob("mkbench-*.whl")
        size = cls.wheel.stat().st_size / 1e6
        print(f"{cls.wheel.name}: {size:.1f} MB in {time.monotonic() - begun:.0f} s", flush=True)
        shutil.copy2(cls.wheel, cls.work)
        begun = time.monotonic()
        cls.first = cls.run_block(cls, blocks("A wheel")[1])
        print(f"installed and first run: {time.monotonic() - begun:.0f} s", flush=True)
        cls.site, = (cls.work / "mkbench-venv" / "lib").glob("python3*/site-packages")
        size = subprocess.run(["du", "-sm", cls.work / "mkbench-venv"], check=True, stdout=subprocess.PIPE, text=True)
        print(f"environment: {size.stdout.split()[0]} MB", flush=True)

    def run_block(self, block, path=None, **extra):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MKBENCH_", "CUDA", "LD_", "PYTHON", "XDG_"))}
        cache = os.environ.get("PIP_CACHE_DIR") or pathlib.Path.home() / ".cache" / "pip"
        environment |= {"HOME": str(self.folder / "home"), "PATH": str(path or self.path), "PIP_CACHE_DIR": str(cache),
                        "TMPDIR": str(self.folder), **extra}
        hide = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-euc", HIDE, "sh",
                str(self.folder / "empty"), *map(str, HIDDEN), "--"]
        return subprocess.run([*hide, "bash", "-euo", "pipefail", "-c", block], cwd=self.work, env=environment,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=1500, check=False)

    def used(self, block, **kwargs):
        result = self.run_block(f'. mkbench-venv/bin/activate\n{block}', **kwargs)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def test_it_runs_without_a_compiler(self):
        self.assertEqual(self.first.returncode, 0, self.first.stdout)
        self.assertIn("**PASS** (exit code 0, 2 cases)", self.first.stdout)
        hidden = self.run_block(f"command -v g++ cc nvcc cmake; ls {ROOT} {sys.prefix}")
        self.assertEqual([line for line in hidden.stdout.splitlines() if line and not line.endswith(":")], [])

    def test_reports_and_scripts(self):
        said = self.used(blocks("A wheel")[2])
        self.assertIn("**PASS**", said)
        self.assertIn("the host twin runs instead of the megakernel", said)
        for name in ("first/report.html", "first/plots/tiny-n32.svg", "plots"):
            self.assertTrue((self.work / name).exists(), name)

    def test_an_engine_in_python(self):
        self.assertIn("**PASS** (exit code 0, 2 cases)", self.used(blocks("A wheel")[3]))

    def test_what_it_lacks_is_said(self):
        result = self.run_block(". mkbench-venv/bin/activate\nmkbench selftest --timing --device cpu")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("in a clone", result.stdout)
        said = self.used("mkbench --compare compiled --device cpu --model tiny --blocks 2 --n-gen 8 --no-plot --out c")
        self.assertIn("found no C++ compiler", said)

    def test_no_file_names_the_builder(self):
        package = self.site / "mkbench"
        for file in package.rglob("*"):
            if file.is_file() and not file.suffix == ".pyc":
                self.assertNotIn(str(ROOT).encode(), file.read_bytes(), file)
        for program in ("mkbench-host-torch", "mkbench-host-cuda"):
            told = subprocess.run(["ldd", package / program], check=True, text=True, stdout=subprocess.PIPE).stdout
            self.assertNotIn("not found", told)
            for library in re.findall(r"lib(?:torch|c10|cudart|fmt|crypto)\S* => (\S.*) \(", told):
                self.assertTrue(pathlib.Path(library).resolve().is_relative_to(self.site.resolve()), library)

    def test_an_engines_own_build(self):
        text, = blocks("An engine's own build", "cmake")
        (self.work / "CMakeLists.txt").write_text(text)
        said = self.used("pip install --quiet cmake ninja\n" + blocks("An engine's own build")[0],
                         path=f"{self.work}/mkbench-venv/bin:{os.environ['PATH']}", CMAKE_GENERATOR="Ninja")
        self.assertRegex(said, r"100% tests passed.* out of 1\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
