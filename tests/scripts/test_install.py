"""An installation of this build, and the commands of docs/install.md that need no wheel, as they stand there."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import page_blocks
from support.cli_support import ROOT, CliTest, environment

import wheel_requirements

BUILD = pathlib.Path(os.environ["BUILD_UNDER_TEST"])
CMAKE = os.environ["CMAKE"]
blocks = functools.partial(page_blocks.blocks, "docs/install.md")


def ours(name):
    """The file called `name` among the project's own modules; None for another's."""
    return next((path for folder in ("scripts", "baselines") if (path := ROOT / folder / name).exists()), None)


def modules_of(name):
    text = ours(name).read_text(encoding="utf-8")
    return set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))


def imported(name):
    """The programs of ours that one of scripts/ imports, directly or not, and itself."""
    found, open_names = set(), {name}
    while open_names:
        found.add(one := open_names.pop())
        open_names |= {f"{m}.py" for m in modules_of(one) if ours(f"{m}.py")} - found
    return found


class Requirements(unittest.TestCase):
    # Packages that come with others.
    WITH = {"huggingface_hub": "transformers", "httpx": "transformers", "tqdm": "transformers",
            "tokenizers": "transformers", "triton": "torch"}
    NAMES = {"jinja2": "Jinja2", "vl_convert": "vl-convert-python"}

    def test_the_wheel_depends_on_what_its_scripts_import(self):
        rules = (ROOT / "cmake" / "MkbenchInstall.cmake").read_text(encoding="utf-8")
        scripts = re.search(r"set\(MKBENCH_SCRIPTS(.*?)\)", rules, re.DOTALL)[1].split()
        foreign = set()
        for name in (name for name in scripts if name.endswith(".py")):
            foreign |= {m for m in modules_of(name) if f"{m}.py" not in scripts and f"baselines/{m}.py" not in rules} - sys.stdlib_module_names - {"__main__"}
        pins = "# a comment\n" + (ROOT / "scripts/requirements/python.txt").read_text(encoding="utf-8")
        lines = wheel_requirements.requirements("1.2.3", pins)
        self.assertEqual(lines[0], "torch==1.2.3")
        named = {re.split("[=>]", line)[0] for line in lines}
        # mkbench fleet installs its own on its first call.
        fleet = (ROOT / "scripts/requirements/fleet.txt").read_text(encoding="utf-8")
        later = {line.split("==")[0] for line in fleet.splitlines() if "==" in line}
        wanted = {self.NAMES.get(m, self.WITH.get(m, m)) for m in foreign - later}
        self.assertEqual(wanted, named)

    def test_a_capture_imports_nothing_that_a_mac_lacks(self):
        pins = (ROOT / "scripts/requirements/capture.txt").read_text(encoding="utf-8")
        packages = set(re.findall(r"^(\w+)", pins, re.MULTILINE))
        standard = sys.stdlib_module_names - {"msvcrt", "nt", "ossaudiodev", "spwd", "winreg", "winsound"}
        for program in ("capture_reference.py", "fetch_model.py"):
            programs = imported(program)
            foreign = set().union(*map(modules_of, programs)) - {p.removesuffix(".py") for p in programs} - standard
            self.assertIn("torch", foreign)
            self.assertLessEqual({self.WITH.get(m, m) for m in foreign}, packages, program)


class InstalledTest(CliTest):
    """An installation under a prefix with a blank, whose first folder on PATH is its bin."""

    @classmethod
    def setUpClass(cls):
        cls.before = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_install_"))
        cls.addClassCleanup(shutil.rmtree, cls.before)
        # Moved after it was installed: nothing may point to where it was.
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.before / "first"], check=True,
                       stdout=subprocess.DEVNULL)
        cls.prefix = cls.before / "my prefix"
        (cls.before / "first").rename(cls.prefix)
        cls.root = cls.prefix / "lib" / "mkbench"

    def installed(self, *args, **kwargs):
        return self.mkbench(*args, binary=str(self.prefix / "bin" / "mkbench"), **kwargs)

    def shell(self, block, **extra):
        path = [str(self.prefix / "bin"), os.path.dirname(CMAKE), os.path.dirname(os.environ["NINJA"]),
                os.environ["PATH"]]
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=self.folder, text=True, timeout=150, check=False,
            env=environment(HOME=str(self.folder), PATH=":".join(path), **extra), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Installation(InstalledTest):
    def test_it_reads_its_own_data(self):
        result = self.installed("list", "root")
        self.assertEqual(result.stdout, f"{self.root}\n", result.stderr)
        self.assertEqual(self.mkbench("list", "root").stdout, f"{ROOT}\n")
        # What is no longer there is missed there, and not found in the source tree.
        tiny, aside = self.root / "references/data/tiny", self.root / "aside"
        tiny.rename(aside)
        try:
            result = self.installed("inspect", "tiny")
        finally:
            aside.rename(tiny)
        self.assertEqual(result.returncode, 2)
        self.assertIn(str(tiny), result.stderr)
        self.assertEqual(self.installed("inspect", "tiny").returncode, 0)

    def test_the_python_that_the_console_script_names(self):
        result = self.installed("fetch", "org/name", env={"MKBENCH_OWN_PYTHON": "/no/python"})
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "mkbench: error: mkbench fetch: cannot run /no/python\n")

    def test_scripts_have_what_they_import(self):
        there = {path.name for folder in ("scripts", "baselines") for path in (self.root / folder).glob("*.py")}
        # A parent that starts a script names it in its sources; capture is started by a person.
        sources = [path.read_text(encoding="utf-8")
                   for folder in ("harness", "baselines") for path in (ROOT / folder).rglob("*.cpp")]
        named = set(re.findall(r'"(\w+\.py)"', "\n".join(sources)))
        started = {name for name in named if (ROOT / "scripts" / name).exists()}
        self.assertLessEqual({"host.py", "plot_report.py", "fetch_model.py"}, started)
        wanted = set().union(*map(imported, started | {"capture_reference.py"})) | {"torch_decoder.py", "hf_static_decoder.py"}
        self.assertEqual(there, wanted)

    def test_baselines_in_python_are_there(self):
        names = {path.name for path in (ROOT / "baselines").glob("*.py")}
        self.assertEqual({path.name for path in (self.root / "baselines").iterdir()}, names)

    def test_what_needs_a_clone_says_so_in_one_line(self):
        result = self.installed("selftest", "--timing", "--device", "cpu", "--quiet")
        self.assertNotEqual(result.returncode, 0)
        lines = [line for line in result.stderr.splitlines() if line.startswith("mkbench: error: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn("in a clone", lines[0])

    def test_the_manual_page(self):
        page = self.prefix / "share/man/man1/mkbench.1"
        if "MKBENCH_HELP2MAN:FILEPATH=MKBENCH_HELP2MAN-NOTFOUND" in (BUILD / "CMakeCache.txt").read_text():
            self.assertFalse(page.exists())
            self.skipTest("set-up found no help2man")
        text = page.read_text().replace("\\-", "-")
        for name in ("run", "doctor", "--compare"):
            self.assertIn(name, text)

    @unittest.skipIf(None in map(shutil.which, ("man", "help2man")), "man or help2man is missing")
    def test_the_page_by_hand(self):
        result = self.shell(blocks("Manual page and completion")[0], MANPAGER="cat")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("MKBENCH(1)", result.stdout)


class OwnBuild(InstalledTest):
    def test_an_engine_is_built_and_judged(self):
        """The page's CMakeLists.txt, outside the tree; the judge's run needs libtorch, its plots the scripts."""
        text, = blocks("An engine's own build", "cmake")
        (self.folder / "CMakeLists.txt").write_text(text)
        result = self.shell(blocks("An engine's own build")[0], CMAKE_GENERATOR="Ninja", CXX=os.environ["CXX"],
                            MKBENCH_PLOT="on")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"100% tests passed.* out of 1\n")
        report, = (self.folder / "build").glob("mkbench-report-*")
        self.assertIn("**PASS** (exit code 0, 1 case)", (report / "report.md").read_text())
        self.assertTrue((report / "report.html").exists())


class WrongOwnBuild(InstalledTest):
    def test_a_wrong_engine_fails_its_test(self):
        text, = blocks("An engine's own build", "cmake")
        (self.folder / "CMakeLists.txt").write_text(text)
        result = self.shell(blocks("An engine's own build")[0], CMAKE_GENERATOR="Ninja", CXX=os.environ["CXX"],
                            CXXFLAGS="-DNAIVE_FAULT=kTheta", MKBENCH_PLOT="off")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("FAIL_TOKEN", result.stdout)


class Page(CliTest):
    def test_cmake_install(self):
        """In a stand-in for the clone, whose build/release is this build."""
        clone = self.folder / "clone"
        (clone / "scripts").mkdir(parents=True)
        (clone / "build").mkdir()
        (clone / "build" / "release").symlink_to(BUILD)
        setup = clone / "scripts" / "setup.sh"
        setup.write_text('#!/bin/sh\n[ "$*" = mkbench_package ]\n')
        setup.chmod(0o755)
        for block in blocks("cmake --install"):
            result = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=clone, text=True, check=False,
                                    env=environment(HOME=str(self.folder)), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
            self.assertEqual(result.returncode, 0, result.stdout)
            files = {path.relative_to(self.folder / ".local").as_posix()
                     for path in (self.folder / ".local").rglob("*") if not path.is_dir()}
            if block.startswith("scripts/setup.sh"):
                self.assertLessEqual({"bin/mkbench", "lib/mkbench/mkbench"}, files)
        self.assertEqual(files, set())  # the last block is how to be rid of it


if __name__ == "__main__":
    unittest.main()
